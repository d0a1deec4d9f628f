"""Error bound of compiled results: a multiple of ATen's own error against a run in double precision.

For ill-conditioned values ATen's own error varies by chance. Values outside the bound are therefore also compared
with ATen's results for inputs that differ by one rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

_MAX_ATEN_RATIO = 4.0
"""Largest error of a result, in multiples of ATen's own, over all of its runs."""

_ROUNDINGS: Mapping[torch.dtype, float] = MappingProxyType({torch.float64: 16384.0, torch.float32: 16.0})
"""Further error allowed, in roundings of a tensor's largest element; 2 for low-precision dtypes. The sums of a run
in double precision are rounded too, hence the many of f64."""

_LARGEST = 1e30
"""Magnitude above which numbers stand for infinity, as in masks, and do not count for a tensor's scale."""

_HUGE_TOLERANCE = 0.01
"""Relative difference up to which two such numbers are equal."""

Values = Mapping[str, Any]
"""Tensors and numbers after a call, by label: ``result 0``, ``input 3``."""


def difference(
    found: Values, aten: Values, exact: Callable[[], Values], nearby: Callable[[], Sequence[Values]]
) -> str:
    """Return the first of the ``found`` values that is wrong, with its error; empty where all are right.

    Values that ATen does not return, such as some gradients, are not compared. ``exact`` returns those of a run in
    double precision, ``nearby`` ATen's for inputs that differ by one rounding; neither is called where all values
    are within the bound by ATen's values alone.
    """
    largest = max(map(_largest, aten.values()), default=0.0)
    suspects = [label for label in aten if _wrong(label, found, [aten], aten, largest)]
    if not suspects:
        return ""
    truth = exact()
    largest = max(map(_largest, truth.values()), default=0.0)
    wrong = [label for label in suspects if _wrong(label, found, [aten], truth, largest)]
    if not wrong:
        return ""
    runs = [aten, *nearby()]
    errors = (_wrong(label, found, runs, truth, largest) for label in wrong)
    return next(filter(None, errors), "")


def _wrong(label: str, found: Values, runs: Sequence[Values], exact: Values, largest: float) -> str:
    """Return the error of one value; empty where it is right."""
    own, others, truth = found.get(label), [run[label] for run in runs], exact[label]
    if not isinstance(others[0], Tensor):
        same = own == others[0] or own != own or any(each != others[0] for each in others)
        return "" if same else f"{label} is {own}, ATen's {others[0]}"
    if own is None and not others[0].numel():
        return ""  # an effect token, which kernels do not need
    if not isinstance(own, Tensor) or (own.dtype, own.shape) != (others[0].dtype, others[0].shape):
        return f"{label} is {_kind(own)}, ATen's {_kind(others[0])}"
    # Data-dependent sizes may differ in other runs.
    others = [each for each in others if each.shape == own.shape]
    if own.is_complex():
        own, truth, *others = (torch.view_as_real(each.resolve_conj()) for each in (own, truth, *others))
    error = _inexact(own, others, truth, largest) if own.is_floating_point() else _unequal(own, others, truth)
    return f"{label} {error}" if error else ""


def _kind(value: object) -> str:
    """Return dtype and shape of a tensor, or another value's type."""
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def _unequal(own: Tensor, runs: Sequence[Tensor], truth: Tensor) -> str:
    """Compare integers and flags: as many elements may differ as roundings of the inputs change."""
    count = int((own != runs[0]).sum())
    bound = int(_MAX_ATEN_RATIO * max(int((each != runs[0]).sum()) for each in (*runs, truth)))
    return (
        f"differs in {count} of {own.numel()} elements, at most {bound} by rounding" if count > bound else ""
    )


def _inexact(own: Tensor, runs: Sequence[Tensor], truth: Tensor, largest: float) -> str:
    """Compare floats: finite ones by distance, others by equality."""
    dtype = own.dtype
    if not own.numel():
        return ""
    exact = truth.to(dtype).double()
    own, *runs = (each.double() for each in (own, *runs))
    measured = (exact.abs() < _LARGEST) & torch.stack([each.abs() < _LARGEST for each in runs]).all(0)
    odd = ~measured | ~own.isfinite()
    for each in (exact, *runs):
        odd &= ~_equal(own, each)
    if bool(odd.any()):
        return f"has {int(odd.sum())} of {own.numel()} elements that are infinite, NaN or huge, or ATen's are"
    off = _distance(own, exact, measured)
    aten = max(_distance(each, exact, measured) for each in runs)
    unit = torch.finfo(dtype).eps
    bound = _MAX_ATEN_RATIO * aten + unit * (_ROUNDINGS.get(dtype, 2.0) * _largest(exact) + largest)
    return "" if off <= bound else f"is off by {off:.3g}, ATen's by {aten:.3g}, the bound is {bound:.3g}"


def _equal(own: Tensor, other: Tensor) -> Tensor:
    """Return the elements that are equal, for values without a distance."""
    close = (own - other).abs() <= _HUGE_TOLERANCE * other.abs()
    return (own == other) | (own.isnan() & other.isnan()) | (close & other.isfinite())


def _distance(own: Tensor, exact: Tensor, measured: Tensor) -> float:
    """Return the largest distance of the measured elements."""
    return float((own - exact).abs().masked_fill(~measured, 0.0).max())


def _largest(value: object) -> float:
    """Return the largest magnitude among a float tensor's elements below :data:`_LARGEST`."""
    if (
        not isinstance(value, Tensor)
        or not value.numel()
        or not (value.is_floating_point() or value.is_complex())
    ):
        return 0.0
    sizes = (value if value.is_complex() else value.double()).abs().double()
    return float(sizes.masked_fill(~(sizes < _LARGEST), 0.0).max())
