"""Tensor factories: constants, ranges and masks of positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from litz_ir.dtypes import DType, compute_dtype, f64, i64
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, Term
from litz_lowering.contexts.context import Axes, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num, Number

Scalar = Expr | Term | Number


def _filled(ctx: LoweringContext, value: Scalar) -> Tensor:
    return ctx.pointwise(lambda axes: ctx.number(value, ctx.output.dtype))


@rule(
    "aten.full.default", "aten.scalar_tensor.default", "aten.full_like.default", "aten.new_full.default",
    moves=True,
)  # fmt: skip
def full(ctx: LoweringContext, *args: Any, **_: Any) -> Tensor:
    """Fill with one value."""
    value = args[0] if "scalar_tensor" in str(ctx.node.target) else args[-1]
    return _filled(ctx, value)


@rule("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default", moves=True)
def ones(ctx: LoweringContext, *_: Any, **__: Any) -> Tensor:
    """Fill with ones."""
    return _filled(ctx, 1)


@rule(
    "aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default", "aten.zero.default",
    "aten.empty.memory_format", "aten.empty_like.default", "aten.new_empty.default", "aten.empty_strided.default",
    "aten.new_empty_strided.default", "aten.empty_permuted.default", moves=True,
)  # fmt: skip
def zeros(ctx: LoweringContext, *_: Any, **__: Any) -> Tensor:
    """Fill with zeros, also for ``empty``, so that no result depends on uninitialised memory."""
    return _filled(ctx, 0)


# --- ranges


def _affine(ctx: LoweringContext, start: Scalar, step: Scalar, dtype: DType) -> Tensor:
    """``start + i * step`` computed in ``dtype``."""

    def body(axes: Axes) -> Expr:
        position = build.cast(build.index(axes[0]), dtype)
        return (Num(ctx.number(start, dtype)) + Num(position) * Num(ctx.number(step, dtype))).expr

    return ctx.pointwise(body)


def _arange(ctx: LoweringContext, start: Scalar, step: Scalar) -> Tensor:
    dtype = ctx.output.dtype
    if not dtype.is_integer:
        return _affine(ctx, start, step, f64 if dtype == f64 or not dtype.is_float else compute_dtype(dtype))
    start, step = _truncated(start), _truncated(step)
    if isinstance(start, Expr) or isinstance(step, Expr):
        return _affine(ctx, start, step, i64)
    return ctx.pointwise(lambda axes: build.cast(build.index(_index(axes[0], start, step)), dtype))


def _truncated(value: Scalar) -> Expr | Size:
    """Number truncated to an integer, as eager does before it counts."""
    if isinstance(value, Expr):
        return build.cast(value, i64)
    return value if isinstance(value, Term) else int(value)


def _index(axis: Size, start: Any, step: Any) -> Size:
    term: Size = axis * step + start
    return term


@rule("aten.arange.default")
def arange(ctx: LoweringContext, end: Scalar, **_: Any) -> Tensor:
    """Integers from 0 below ``end``."""
    return _arange(ctx, 0, 1)


@rule("aten.arange.start")
def arange_start(ctx: LoweringContext, start: Scalar, end: Scalar, **_: Any) -> Tensor:
    """Integers from ``start`` below ``end``."""
    return _arange(ctx, start, 1)


@rule("aten.arange.start_step")
def arange_step(ctx: LoweringContext, start: Scalar, end: Scalar, step: Scalar = 1, **_: Any) -> Tensor:
    """Numbers from ``start`` to ``end`` in increments of ``step``."""
    return _arange(ctx, start, step)


def bind_range_size(ctx: LoweringContext, args: Sequence[Scalar]) -> bool:
    """Define a symbol for the size of a range by floats, which no term expresses.

    The host computes it once per call, as eager does. Returns False where the node makes no range, or one of
    64-bit integers, whose size eager computes differently.
    """
    value, target = ctx.node.meta["val"], ctx.node.target
    if not str(target).startswith("aten.arange.") or value.dtype == torch.int64:
        return False
    bounds = (0, *args) if len(args) == 1 else args
    start, end, step = (ctx.number(bound, f64) for bound in (*bounds, 1)[:3])
    length = build.op("div", build.op("sub", end, start), step)
    size = ctx.host_integer(build.op("ceil", length), "size", low=0)
    ctx.builder.symbols.substitute(value.shape[0], size.name)
    return True


@rule("prims.iota.default")
def iota(ctx: LoweringContext, length: Size, *, start: Scalar, step: Scalar, **_: Any) -> Tensor:
    """``length`` numbers from ``start`` in increments of ``step``."""
    return _arange(ctx, start, step)


@rule("aten.linspace.default")
def linspace(ctx: LoweringContext, start: Number, end: Number, steps: int, **_: Any) -> Tensor:
    """``steps`` numbers from ``start`` to ``end``, counted from the start in the first half and from the end in
    the second."""
    dtype = ctx.output.dtype
    wide = compute_dtype(dtype) if dtype.is_float else f64
    first, last = Num(ctx.number(start, wide)), Num(ctx.number(end, wide))
    step = (last - first) / float(max(steps - 1, 1))

    def body(axes: Axes) -> Expr:
        position = f.index(axes[0])
        from_start = first + step * position.to(wide)
        from_end = last - step * (f.index(steps - 1) - position).to(wide)
        return f.where(position < (steps // 2 if steps > 1 else 1), from_start, from_end).expr

    return ctx.pointwise(body)


# --- masks of positions


@rule("aten.eye.default", "aten.eye.m")
def eye(ctx: LoweringContext, *_: Any, **__: Any) -> Tensor:
    """Ones on the diagonal, zeros elsewhere."""
    return ctx.pointwise(
        lambda axes: build.cast(f.index(axes[0]).eq(f.index(axes[1])).expr, ctx.output.dtype)
    )


def _triangle(ctx: LoweringContext, x: Tensor, diagonal: Size, lower: bool) -> Tensor:
    def body(axes: Axes) -> Expr:
        row, column = f.index(axes[-2]), f.index(axes[-1])
        edge = row + f.index(diagonal)
        inside = column <= edge if lower else column >= edge
        return build.masked(inside.expr, x.load(axes), build.const(0, x.dtype))

    return ctx.pointwise(body)


@rule("aten.tril.default")
def tril(ctx: LoweringContext, x: Tensor, diagonal: Size = 0) -> Tensor:
    """Elements on and below a diagonal, zeros elsewhere."""
    return _triangle(ctx, x, diagonal, True)


@rule("aten.triu.default")
def triu(ctx: LoweringContext, x: Tensor, diagonal: Size = 0) -> Tensor:
    """Elements on and above a diagonal, zeros elsewhere."""
    return _triangle(ctx, x, diagonal, False)
