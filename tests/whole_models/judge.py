"""Judge a run's tensors by how far eager's own run of the same precision is from a more exact one.

Each tensor is judged by its name. Its distance from the exact tensor may be so many times the distance that eager
leaves at the same precision, and that of its worst element a few times that of eager's worst. An element that is
finite in one of them and not in the other is a fault by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

ELEMENT_LIMIT = 6.0
"""Allowed distance of a worst element, in multiples of eager's; the largest rounding error varies more than the norm of
all."""

NOISE_LIMIT = 4.0
"""Allowed multiple of eager's error where that is half of the tensor or more: the tensor is zero but for rounding, and
no digit is right."""


@dataclass(frozen=True, slots=True)
class Precision:
    """Allowed multiple of eager's error by dtype of computation, and a share of the norm that is always allowed."""

    limit: float
    floor: float


PRECISIONS = {"f32": Precision(2.0, 2.0**-22), "bf16": Precision(1.5, 2.0**-12)}


@dataclass(frozen=True, slots=True)
class Yardstick:
    """An exact tensor, and eager's distance from it at the precision that is judged."""

    exact: Tensor
    size: float
    largest: float
    error: float
    element: float
    odd: Tensor | None
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict on one tensor, which is wrong where `ratio` exceeds `limit`; errors are shares of the tensor's
    norm."""

    name: str
    fault: str
    ratio: float
    limit: float
    error: float
    eager_error: float

    @property
    def wrong(self) -> bool:
        """Report that the tensor is out of its bounds."""
        return self.fault != ""

    def describe(self) -> str:
        """Return one line."""
        what = self.fault or "right"
        times = f"{self.ratio:.3g} times eager's error of {self.eager_error:.1e}"
        return f"{self.name}: {what}, {times} (limit {self.limit:g})"


def measured(exact: Mapping[str, Tensor], eager: Mapping[str, Tensor]) -> dict[str, Yardstick]:
    """Return a yardstick for each tensor: `exact` is a run of higher precision, `eager` one of that to be judged."""
    found = {}
    for name, tensor in eager.items():
        reference = exact[name]
        error, element = _distance(tensor, reference)
        size = float(torch.linalg.vector_norm(_wide(reference)))
        largest = float(_wide(reference).abs().amax()) if reference.numel() else 0.0
        found[name] = Yardstick(reference, size, largest, error, element, _odd(tensor), tensor.dtype)
    return found


def widened(yardsticks: Mapping[str, Yardstick], eager: Mapping[str, Tensor]) -> dict[str, Yardstick]:
    """Return the yardsticks with the larger of their errors and those of another run of eager."""
    found = {}
    for name, stick in yardsticks.items():
        error, element = _distance(eager[name], stick.exact)
        found[name] = replace(stick, error=max(error, stick.error), element=max(element, stick.element))
    return found


def judged(
    found: Mapping[str, Tensor], yardsticks: Mapping[str, Yardstick], precision: Precision
) -> list[Finding]:
    """Return a finding for each tensor, in the order of the yardsticks; one that only one side has is a fault."""
    findings = []
    for name, stick in yardsticks.items():
        tensor = found.get(name)
        if tensor is None:
            findings.append(Finding(name, "missing", math.inf, precision.limit, math.inf, 0.0))
        else:
            findings.append(_judged(name, tensor, stick, precision))
    extra = (name for name in found if name not in yardsticks)
    return findings + [
        Finding(name, "not in eager", math.inf, precision.limit, math.inf, 0.0) for name in extra
    ]


def worst_of(findings: Sequence[Finding]) -> Finding:
    """Return the finding furthest beyond its limit, or nearest to it; a fault comes before what is right."""
    return max(findings, key=lambda each: (each.wrong, each.ratio / each.limit))


def _judged(name: str, tensor: Tensor, stick: Yardstick, precision: Precision) -> Finding:
    scale = stick.size or 1.0
    eager_error = stick.error / scale
    if tensor.shape != stick.exact.shape or tensor.dtype != stick.dtype:
        fault = f"{tensor.dtype}{list(tensor.shape)} for {stick.dtype}{list(stick.exact.shape)}"
        return Finding(name, fault, math.inf, precision.limit, math.inf, eager_error)
    if not tensor.is_floating_point():
        fault = "" if torch.equal(tensor, stick.exact.to(tensor.dtype)) else "unequal"
        return Finding(name, fault, math.inf if fault else 0.0, precision.limit, 0.0, 0.0)
    strange = _disagreement(_odd(tensor), stick.odd)
    if strange:
        fault = f"{strange} elements NaN or infinite in one of both"
        return Finding(name, fault, math.inf, precision.limit, math.inf, eager_error)
    error, element = _distance(tensor, stick.exact)
    noise = stick.error >= 0.5 * stick.size
    limit = NOISE_LIMIT if noise else precision.limit
    by_norm = _ratio(error, stick.error + precision.floor * stick.size)
    by_element = _ratio(element, stick.element + precision.floor * stick.largest)
    if by_norm <= limit and by_element > ELEMENT_LIMIT:
        return Finding(name, "an element is far", by_element, ELEMENT_LIMIT, error / scale, eager_error)
    return Finding(name, "far" if by_norm > limit else "", by_norm, limit, error / scale, eager_error)


def _ratio(error: float, allowed: float) -> float:
    if error == 0.0:
        return 0.0
    return error / allowed if allowed else math.inf


def _distance(tensor: Tensor, exact: Tensor) -> tuple[float, float]:
    """Return the norm and the largest of the differences, where both are finite."""
    if tensor.numel() == 0 or tensor.shape != exact.shape:
        return 0.0, 0.0
    apart = _wide(tensor) - _wide(exact)
    apart = apart.masked_fill_(~apart.isfinite(), 0.0)
    return float(torch.linalg.vector_norm(apart)), float(apart.abs_().amax())


def _wide(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.float64)


def _odd(tensor: Tensor) -> Tensor | None:
    """Return a code for each element: finite 0, NaN 1, infinity 2, negative infinity 3; `None` where all are finite."""
    if not tensor.is_floating_point() or bool(tensor.isfinite().all()):
        return None
    return tensor.isnan() + 2 * tensor.isposinf() + 3 * tensor.isneginf()


def _disagreement(first: Tensor | None, second: Tensor | None) -> int:
    if first is None and second is None:
        return 0
    if first is None or second is None:
        both = first if first is not None else second
        assert both is not None
        return int(both.count_nonzero())
    return int((first != second).sum())
