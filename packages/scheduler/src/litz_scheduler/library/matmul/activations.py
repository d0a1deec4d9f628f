"""Activations that oneDNN's convolution applies as a post-operation, with the loop bodies that lowering writes.

Activations that do not propagate NaN are left out: oneDNN's ``relu`` and ``hardsigmoid`` turn NaN into zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from litz_ir.scalar import Expr, const, op, where


def _clipped(x: Expr, low: float, high: float) -> Expr:
    below, above = const(low, x.dtype), const(high, x.dtype)
    x = where(op("lt", x, below), below, x)
    return where(op("gt", x, above), above, x)


def _hardswish(x: Expr) -> Expr:
    bounded = _clipped(op("add", x, const(3.0, x.dtype)), 0.0, 6.0)
    return op("div", op("mul", x, bounded), const(6.0, x.dtype))


def _silu(x: Expr) -> Expr:
    return op("div", x, op("add", const(1.0, x.dtype), op("exp", op("neg", x))))


ACTIVATIONS: Mapping[str, Callable[[Expr], Expr]] = {
    "none": lambda x: x,
    "hardswish": _hardswish,
    "silu": _silu,
    "sigmoid": lambda x: op("sigmoid", x),
}
"""The supported activations: the name that the routine ``convolution`` takes, and the body over its argument."""


def activation(body: Expr, x: Expr) -> str | None:
    """Return the name in :data:`ACTIVATIONS` whose body over ``x`` is ``body``; ``None`` for any other body."""
    return next((name for name, spelled in ACTIVATIONS.items() if spelled(x) == body), None)
