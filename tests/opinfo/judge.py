"""Comparison of litz's results and side effects with eager's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from opinfo.entries import Tolerance
from opinfo.execution import Seen

Fault = Literal["error", "structure", "dtype", "shape", "strides", "aliasing", "value", "side effect"]
Reference = Callable[[], Seen]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A difference from eager: its kind, and one line that says where and how large."""

    fault: Fault
    reason: str


def mismatch(
    actual: Seen,
    expected: Seen,
    reference: Reference,
    tolerance: Callable[[torch.dtype], Tolerance],
    values: bool,
) -> Mismatch | None:
    """Return the first difference between two runs, or `None`.

    `reference` runs eager in double precision: a value further from eager's than the tolerance is right where it
    is no further than that from the reference than eager's own. Without `values` only their kind is compared.
    """
    if actual.error is not None or expected.error is not None:
        return _errors(actual.error, expected.error)
    if actual.structure != expected.structure or list(actual.leaves) != list(expected.leaves):
        return Mismatch("structure", f"{actual.structure} where eager gives {expected.structure}")
    for label, leaf in expected.leaves.items():
        found = _kind(label, actual.leaves[label], leaf)
        if found is not None:
            return found
    if actual.shared != expected.shared:
        return Mismatch("aliasing", _aliasing(actual.shared, expected.shared))
    for label, leaf in expected.leaves.items() if values else ():
        found = _value(label, actual.leaves[label], leaf, reference, tolerance)
        if found is not None:
            return found
    return None


def _errors(actual: Exception | None, expected: Exception | None) -> Mismatch | None:
    if expected is not None and isinstance(actual, type(expected)):
        return None
    return Mismatch(
        "error",
        f"{_named(actual)} where eager {'gives' if expected is None else 'raises'} {_named(expected)}",
    )


def _named(error: Exception | None) -> str:
    if error is None:
        return "a value"
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _kind(label: str, actual: Any, expected: Any) -> Mismatch | None:
    """Compare type, dtype, shape, layout and strides of one leaf."""
    if type(actual) is not type(expected):
        return Mismatch("structure", f"{label}: {type(actual).__name__} for {type(expected).__name__}")
    if not isinstance(expected, torch.Tensor):
        return None
    if actual.dtype != expected.dtype:
        return Mismatch("dtype", f"{label}: {actual.dtype} for {expected.dtype}")
    if actual.shape != expected.shape:
        return Mismatch("shape", f"{label}: {list(actual.shape)} for {list(expected.shape)}")
    if actual.layout != expected.layout:
        return Mismatch("strides", f"{label}: {actual.layout} for {expected.layout}")
    if label.startswith("gradient") or expected.layout != torch.strided or _same_strides(actual, expected):
        return None
    return Mismatch("strides", f"{label}: {list(actual.stride())} for {list(expected.stride())}")


def _same_strides(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Report that the strides agree in every dimension of more than one element."""
    return a.numel() == 0 or all(
        size < 2 or own == other for size, own, other in zip(a.shape, a.stride(), b.stride())
    )


def _aliasing(actual: frozenset[tuple[str, str]], expected: frozenset[tuple[str, str]]) -> str:
    missing = [f"{a} does not share {b}'s storage" for a, b in sorted(expected - actual)]
    added = [f"{a} shares {b}'s storage" for a, b in sorted(actual - expected)]
    return ", ".join(missing + added)


def _value(
    label: str,
    actual: Any,
    expected: Any,
    reference: Reference,
    tolerance: Callable[[torch.dtype], Tolerance],
) -> Mismatch | None:
    fault: Fault = "side effect" if label.startswith("argument") else "value"
    if not isinstance(expected, torch.Tensor):
        if _same_scalar(actual, expected):
            return None
        return Mismatch(fault, f"{label}: {actual!r} for {expected!r}")
    if expected.layout != torch.strided:
        actual, expected = actual.to_dense(), expected.to_dense()
    if expected.is_quantized:
        actual, expected = actual.dequantize(), expected.dequantize()
    allowed = tolerance(expected.dtype)
    bad = ~close(actual, expected, allowed)
    if not bad.any():
        return None
    if expected.dtype.is_floating_point or expected.dtype.is_complex:
        exact = reference().leaves.get(label)
        if isinstance(exact, torch.Tensor) and exact.shape == expected.shape and not exact.is_sparse:
            bad &= ~no_further(actual, expected, exact, allowed)
            if not bad.any():
                return None
    return Mismatch(fault, f"{label}: {_worst(actual, expected, bad)}")


def close(actual: torch.Tensor, expected: torch.Tensor, allowed: Tolerance) -> torch.Tensor:
    """Return a mask of the elements that agree: NaN with NaN, infinities by sign, integers exactly."""
    if expected.dtype.is_complex:
        actual, expected = (
            torch.view_as_real(actual.resolve_conj()),
            torch.view_as_real(expected.resolve_conj()),
        )
        size = torch.hypot(expected[..., 0], expected[..., 1])[..., None]
        near = (actual - expected).abs() <= allowed.absolute + allowed.relative * size
        same = (actual == expected) | (actual.isnan() & expected.isnan()) | (near & expected.isfinite())
        return same.all(-1)
    if not expected.dtype.is_floating_point:
        return actual == expected
    return torch.isclose(
        actual.double(), expected.double(), rtol=allowed.relative, atol=allowed.absolute, equal_nan=True
    )


def no_further(
    actual: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor, allowed: Tolerance
) -> torch.Tensor:
    """Return a mask of the elements at which `actual` is no further from `exact` than `expected` is, up to the
    tolerance."""
    wide = torch.complex128 if expected.dtype.is_complex else torch.float64
    exact = exact.to(wide)
    own, eager = (actual.to(wide) - exact).abs(), (expected.to(wide) - exact).abs()
    return own <= eager + allowed.absolute + allowed.relative * exact.abs()


def _same_scalar(actual: Any, expected: Any) -> bool:
    if isinstance(expected, float):
        return math.isclose(actual, expected, rel_tol=1e-6, abs_tol=1e-6) or (
            math.isnan(actual) and math.isnan(expected)
        )
    return bool(actual == expected)


def _worst(actual: torch.Tensor, expected: torch.Tensor, bad: torch.Tensor) -> str:
    first = tuple(int(i) for i in bad.nonzero()[0]) if bad.ndim else ()
    found, wanted = actual[first].item(), expected[first].item()
    return f"{int(bad.sum())} of {bad.numel()} differ, the first at {list(first)}: {found} for {wanted}"
