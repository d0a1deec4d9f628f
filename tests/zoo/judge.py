"""The judge: whether all that a compiled run left is eager's, by kind to the letter and by value within rounding.

A tensor's distance from a run in double precision is its largest absolute difference. litz's may be `MULTIPLE`
times eager's own and a little for rounding beyond that: `FLOOR` units of the last place of the tensor's largest
element, and one of the largest element of the tensors that it stands among (results, gradients or buffers), for a
gradient may be the sum of large terms that cancel. Where a value is ill-conditioned eager's distance varies by
luck: `further` runs of eager, from weights that are rounded otherwise, then take part with the largest of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch

MULTIPLE, FLOOR = 4.0, 32.0
SAME = 0.01
"""Share of a tensor's largest element beyond which a run in double precision counts as another computation."""
LARGEST = 1e30
"""Magnitude beyond which a number stands for infinity, as in a mask."""

Leaves = Mapping[str, torch.Tensor]
"""Tensors after a run, by label: `output 0`, `gradient layer.weight`, `buffer norm.running_mean`."""


def kind_of(label: str) -> str:
    """Return the first word of a label."""
    return label.partition(" ")[0]


def difference(
    actual: Leaves, expected: Leaves, exact: Leaves, further: Callable[[], list[Leaves]]
) -> str | None:
    """Return the first difference between two runs in one line, or ``None``."""
    if list(actual) != list(expected):
        odd = sorted(set(actual) ^ set(expected))[:4]
        return f"structure: {len(actual)} tensors where eager leaves {len(expected)}: {', '.join(odd)}"
    for label, tensor in expected.items():
        found = _kind(actual[label], tensor)
        if found is not None:
            return f"{label}: {found}"
    scales = _scales(exact)
    bad = [label for label in expected if _value(label, actual, [expected], exact, scales) is not None]
    if not bad:
        return None
    runs = [expected, *further()]
    for label in bad:
        found = _value(label, actual, runs, exact, scales)
        if found is not None:
            return f"{label}: {found} ({len(bad)} of {len(expected)} tensors)"
    return None


def far_apart(expected: Leaves, exact: Leaves) -> str | None:
    """Return the first tensor in which a run in double precision is not the same computation as eager's."""
    scales = _scales(exact)
    for label, tensor in expected.items():
        reference = exact.get(label)
        if reference is None or reference.shape != tensor.shape:
            return label
        if tensor.is_floating_point() and tensor.numel():
            measured = tensor.abs() < LARGEST
            found = _distance(tensor.detach().double(), reference.detach().double(), measured)
            if found > SAME * max(_largest(reference.double()), scales[kind_of(label)] * SAME):
                return label
        elif bool((tensor != reference).any()):
            return label
    return None


def _kind(actual: torch.Tensor, expected: torch.Tensor) -> str | None:
    """Compare dtype, shape and the strides of dimensions that have more than one element."""
    if actual.dtype != expected.dtype:
        return f"dtype: {actual.dtype} for {expected.dtype}"
    if actual.shape != expected.shape:
        return f"shape: {list(actual.shape)} for {list(expected.shape)}"
    if expected.layout != torch.strided or actual.layout != expected.layout or not expected.numel():
        return None if actual.layout == expected.layout else f"layout: {actual.layout} for {expected.layout}"
    strides = zip(expected.shape, actual.stride(), expected.stride())
    if any(size > 1 and own != other for size, own, other in strides):
        return f"strides: {list(actual.stride())} for {list(expected.stride())}"
    return None


def _scales(exact: Leaves) -> dict[str, float]:
    """Return the largest element of all tensors of a kind."""
    found: dict[str, float] = {}
    for label, tensor in exact.items():
        if tensor.is_floating_point():
            kind = kind_of(label)
            found[kind] = max(found.get(kind, 0.0), _largest(tensor.double()))
    return found


def _largest(tensor: torch.Tensor) -> float:
    sizes = tensor.abs()
    sizes = sizes[sizes < LARGEST]
    return float(sizes.max()) if sizes.numel() else 0.0


def _value(
    label: str, actual: Leaves, runs: list[Leaves], exact: Leaves, scales: Mapping[str, float]
) -> str | None:
    """Compare the values of one tensor, in which all of ``runs`` are right."""
    own, expected = actual[label].detach(), runs[0][label].detach()
    if not expected.is_floating_point() or not expected.numel():
        wrong = int((own != expected).sum())
        return f"value: {wrong} of {own.numel()} differ" if wrong else None
    own, expected, reference = own.double(), expected.double(), exact[label].detach().double()
    measured = expected.abs() < LARGEST
    same = (own == expected) | (own.isnan() & expected.isnan()) | (measured & own.isfinite())
    same |= (own.abs() >= LARGEST) & (expected.abs() >= LARGEST) & (own.sign() == expected.sign())
    if not bool(same.all()):
        first = tuple(int(index) for index in (~same).nonzero()[0]) if same.ndim else ()
        return f"value: {float(own[first])} for {float(expected[first])} at {list(first)}"
    eager = max(_distance(run[label].detach().double(), reference, measured) for run in runs)
    found = _distance(own, reference, measured)
    unit = torch.finfo(runs[0][label].dtype).eps
    floor = unit * (FLOOR * _largest(reference) + scales.get(kind_of(label), 0.0))
    if found <= MULTIPLE * eager + floor:
        return None
    return f"value: {found:.3g} from f64 where eager is {eager:.3g}, of {_largest(reference):.3g}"


def _distance(tensor: torch.Tensor, reference: torch.Tensor, measured: torch.Tensor) -> float:
    if not bool(measured.any()):
        return 0.0
    found = float((tensor - reference)[measured].abs().max())
    return math.inf if math.isnan(found) else found
