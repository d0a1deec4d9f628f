"""Scatters through index tensors: the result is a copy with the indexed elements changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from litz_ir.dtypes import DType, compute_dtype, i32
from litz_ir.loops import ScatterMode, TensorType
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size
from litz_lowering.contexts.context import Axes, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num, extreme
from litz_lowering.rules.indexing.index import (
    IndexFunction,
    along,
    lifted,
    replaced,
)
from litz_lowering.rules.indexing.view import dimension

UpdateFunction = Callable[[Axes], Expr]

_MODES: dict[str, ScatterMode] = {
    "sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amin": "min", "amax": "max",
}  # fmt: skip
_OPERATION = {"add": "add", "mul": "mul", "min": "minimum", "max": "maximum"}
_BITS: dict[ScatterMode, ScatterMode] = {"add": "max", "mul": "min"}
_FILLS = frozenset(
    getattr(torch.ops.aten, name).default
    for name in "full full_like zeros zeros_like ones ones_like new_zeros new_ones new_full".split()
)


def combine_dtype(dtype: DType, mode: ScatterMode) -> DType:
    """Dtype in which elements are combined: ``f32`` for 16-bit floats, ``i32`` for bools."""
    if mode == "set":
        return dtype
    return i32 if dtype.is_bool else compute_dtype(dtype)


def combined(
    ctx: LoweringContext,
    base: Tensor,
    over: Sequence[Size],
    index: IndexFunction,
    body: UpdateFunction,
    mode: ScatterMode,
) -> Tensor:
    """Combine ``body`` into a copy of ``base``, the node's result, at ``index`` for every point of ``over``.

    16-bit floats are combined in ``f32`` and rounded once, bools as integers of which 0 is false.
    """
    kind, combined_dtype = ctx.output, combine_dtype(base.dtype, mode)

    def value(axes: Axes) -> Expr:
        made = body(axes)
        return build.cast(build.cast(made, kind.dtype) if kind.dtype.is_bool else made, combined_dtype)

    if combined_dtype == kind.dtype and base.shape == kind.shape:
        return ctx.scatter(base, over, index, value, mode=mode)
    wide = ctx.temporary(combined_dtype, base.shape)
    start = base if combined_dtype == base.dtype else ctx.pointwise(base.load, wide, "wide")
    total = ctx.scatter(
        start, over, index, value, mode=_of_bits(mode, base.dtype), type=wide, name="combined"
    )
    return ctx.pointwise(lambda axes: total.load(axes or (0,)))


def _of_bits(mode: ScatterMode, dtype: DType) -> ScatterMode:
    """Combination of 0 and 1 that stand for bools: the maximum for sums, the minimum for products."""
    return _BITS.get(mode, mode) if dtype.is_bool else mode


def zeros(ctx: LoweringContext, kind: TensorType) -> Tensor:
    """Intermediate that is zero everywhere."""
    return ctx.pointwise(lambda axes: build.const(0, kind.dtype), kind, "zeros")


def identity(mode: ScatterMode, dtype: DType) -> int | float:
    """Identity of a combination; for min and max an extreme of ``dtype``."""
    if mode in ("add", "mul"):
        return 0 if mode == "add" else 1
    return extreme(dtype, largest=mode == "min")


# --- scatter along one dimension ----------------------------------------


def _at(ctx: LoweringContext, x: Tensor, d: int, index: Tensor) -> IndexFunction:
    """Index of a point with dimension ``d`` of ``x`` replaced by ``index``; negative indices are errors."""
    return lambda axes: list(replaced(axes, d, ctx.indirect(index.load(axes), x.shape[d], fault="element")))


def _scatter(
    ctx: LoweringContext, x: Tensor, dim: int, index: Tensor, body: UpdateFunction, mode: ScatterMode
) -> Tensor:
    """Combine ``body`` into ``x`` at every point of ``index``, whose values are positions along ``dim``."""
    if any(size == 0 for size in index.shape):
        return ctx.pointwise(x.load)
    x, index = lifted(ctx, x), lifted(ctx, index)
    d = dimension(dim, x.rank)
    target = _at(ctx, x, d, index)
    fits = all(k == d or i == s for k, (i, s) in enumerate(zip(index.shape, x.shape, strict=True)))
    if index.shape[d] == 1 and fits and x.shape == ctx.output.shape and _is_fill(ctx.node.args[0]):
        return _by_comparison(ctx, x, d, target, body, mode)
    return combined(ctx, x, index.shape, target, body, mode)


def _by_comparison(
    ctx: LoweringContext, x: Tensor, d: int, target: IndexFunction, body: UpdateFunction, mode: ScatterMode
) -> Tensor:
    """Single write per element into a tensor that is never stored, as a comparison instead of a scatter."""
    dtype = compute_dtype(combine_dtype(x.dtype, mode))

    def chosen(axes: Axes) -> Expr:
        point = replaced(axes, d, 0)
        here = build.op("eq", build.index(axes[d]), build.index(target(point)[d]))
        old = build.cast(x.load(axes), dtype)
        new = build.cast(body(point), dtype)
        if mode != "set":
            new = build.op(_OPERATION[mode], old, new)
        return build.where(here, new, old)

    return ctx.pointwise(chosen)


def _is_fill(argument: object) -> bool:
    return isinstance(argument, Node) and argument.target in _FILLS


@rule("aten.scatter.src")
def scatter_src(ctx: LoweringContext, x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Store ``src`` at ``index`` along ``dim``; the last write wins."""
    return _scatter(ctx, x, dim, index, lifted(ctx, src).load, "set")


@rule("aten.scatter.value")
def scatter_value(ctx: LoweringContext, x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """Store a number at ``index`` along ``dim``."""
    return _scatter(ctx, x, dim, index, lambda axes: ctx.number(value, x.dtype), "set")


@rule("aten.scatter.reduce")
def scatter_with(
    ctx: LoweringContext, x: Tensor, dim: int, index: Tensor, src: Tensor, *, reduce: str
) -> Tensor:
    """Add or multiply ``src`` into ``index`` along ``dim``."""
    return _scatter(ctx, x, dim, index, _widened(lifted(ctx, src)), _MODES[reduce])


@rule("aten.scatter.value_reduce")
def scatter_value_with(
    ctx: LoweringContext, x: Tensor, dim: int, index: Tensor, value: Any, *, reduce: str
) -> Tensor:
    """Add or multiply a number into ``index`` along ``dim``."""
    number = ctx.number(value, compute_dtype(x.dtype))
    return _scatter(ctx, x, dim, index, lambda axes: number, _MODES[reduce])


@rule("aten.scatter_add.default")
def scatter_add(ctx: LoweringContext, x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Add ``src`` into ``index`` along ``dim``."""
    return _scatter(ctx, x, dim, index, _widened(lifted(ctx, src)), "add")


@rule("aten.scatter_reduce.two")
def scatter_reduce(
    ctx: LoweringContext,
    x: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """Combine ``src`` into ``index`` along ``dim``; without ``include_self``, indexed elements start from the
    identity."""
    body = _widened(lifted(ctx, src))
    if include_self and reduce != "mean":
        return _scatter(ctx, x, dim, index, body, _MODES[reduce])
    if any(size == 0 for size in index.shape):
        return ctx.pointwise(x.load)
    x, index = lifted(ctx, x), lifted(ctx, index)
    target = _at(ctx, x, dimension(dim, x.rank), index)
    return _reduced(ctx, x, index.shape, target, body, reduce, include_self)


def _reduced(
    ctx: LoweringContext,
    x: Tensor,
    over: Sequence[Size],
    target: IndexFunction,
    body: UpdateFunction,
    reduce: str,
    include_self: bool,
) -> Tensor:
    """Combine ``body`` into elements by the combination ``reduce``."""
    if reduce == "mean":
        return _averaged(ctx, x, over, target, body, include_self)
    mode = _MODES[reduce]
    start = x if include_self else _with_identity(ctx, x, over, target, mode)
    return combined(ctx, start, over, target, body, mode)


def _with_identity(
    ctx: LoweringContext, x: Tensor, over: Sequence[Size], target: IndexFunction, mode: ScatterMode
) -> Tensor:
    """``x`` with the identity of the combination at indexed elements."""
    start = build.const(identity(mode, x.dtype), x.dtype)
    blank = ctx.temporary(x.dtype, x.shape)
    return ctx.scatter(x, over, target, lambda axes: start, type=blank, name="emptied")


def _averaged(
    ctx: LoweringContext,
    x: Tensor,
    over: Sequence[Size],
    target: IndexFunction,
    body: UpdateFunction,
    include_self: bool,
) -> Tensor:
    """Sums divided by the number of summands, rounded down for integers. As in eager, both use the same dtype."""
    kind = ctx.temporary(compute_dtype(x.dtype), x.shape)
    start = x if include_self else _with_identity(ctx, x, over, target, "add")
    if start.dtype != kind.dtype:
        start = ctx.pointwise(start.load, kind, "wide")
    one = build.const(1, kind.dtype)
    before = ctx.pointwise(lambda axes: one if include_self else build.const(0, kind.dtype), kind, "before")
    total = ctx.scatter(start, over, target, body, mode="add", type=kind, name="total")
    counts = ctx.scatter(before, over, target, lambda axes: one, mode="add", type=kind, name="counts")

    def mean(axes: Axes) -> Expr:
        count = Num(counts.load(axes or (0,)))
        divisor = f.where(count.eq(0), 1, count)
        value = Num(total.load(axes or (0,)))
        return (value / divisor if kind.dtype.is_float else f.floor_div(value, divisor)).expr

    return ctx.pointwise(mean)


def _widened(src: Tensor) -> UpdateFunction:
    return lambda axes: build.cast(src.load(axes), compute_dtype(src.dtype))


# --- slices by index ----------------------------------------


def _slices(
    ctx: LoweringContext, x: Tensor, d: int, index: Tensor, *, wrap: bool = False, fault: str = "index"
) -> IndexFunction:
    """Index of a point with dimension ``d`` of ``x`` replaced by an element of ``index``."""

    def target(axes: Axes) -> list[Size]:
        chosen = ctx.indirect(along(index, axes[d]), x.shape[d], wrap=wrap, fault=fault)
        return list(replaced(axes, d, chosen))

    return target


@rule("aten.index_add.default")
def index_add(
    ctx: LoweringContext, x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1
) -> Tensor:
    """Add ``alpha * source`` into the slices ``index``."""
    x, source = lifted(ctx, x), lifted(ctx, source)
    wide = combine_dtype(x.dtype, "add")

    def body(axes: Axes) -> Expr:
        value = build.cast(source.load(axes), wide)
        scaled = not (isinstance(alpha, int | float) and alpha == 1)
        return build.op("mul", value, ctx.number(alpha, wide)) if scaled else value

    d = dimension(dim, x.rank)
    # Eager adds to the first and the last of several dimensions by a scatter, which raises a different error.
    by_scatter = x.rank > 1 and d in (0, x.rank - 1)
    target = _slices(ctx, x, d, index, fault="element" if by_scatter else "index")
    return combined(ctx, x, source.shape, target, body, "add")


@rule("aten.index_reduce.default")
def index_reduce(
    ctx: LoweringContext,
    x: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """Combine ``source`` into the slices ``index``."""
    x, source = lifted(ctx, x), lifted(ctx, source)
    target = _slices(ctx, x, dimension(dim, x.rank), index)
    return _reduced(ctx, x, source.shape, target, _widened(source), reduce, include_self)


@rule("aten.index_copy.default")
def index_copy(ctx: LoweringContext, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Store ``source`` into the slices ``index``."""
    x, source = lifted(ctx, x), lifted(ctx, source)
    target = _slices(ctx, x, dimension(dim, x.rank), index)
    return combined(ctx, x, source.shape, target, source.load, "set")


@rule("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def index_fill(ctx: LoweringContext, x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """Store a number into the slices ``index``; negative indices count from the end."""
    x = lifted(ctx, x)
    d = dimension(dim, x.rank)

    def body(axes: Axes) -> Expr:
        return value.load(()) if isinstance(value, Tensor) else ctx.number(value, x.dtype)

    over = replaced(x.shape, d, index.numel)
    return combined(ctx, x, over, _slices(ctx, x, d, index, wrap=True), body, "set")
