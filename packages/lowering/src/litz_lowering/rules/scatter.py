"""Writes through index tensors: the result is a copy with those elements changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from litz_ir.dtypes import DType, b1, compute_dtype, i32
from litz_ir.loops import ScatterMode, TensorType
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size
from litz_lowering.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.registry import rule
from litz_lowering.rules import formula as f
from litz_lowering.rules.formula import Num, extreme
from litz_lowering.rules.index import (
    Advanced,
    IndexFunction,
    advanced,
    along,
    broadcast,
    checked,
    lifted,
    masks_in,
    refused_index,
    replaced,
)
from litz_lowering.rules.index_maps import reshaped, unflatten
from litz_lowering.rules.known_index import Inverse
from litz_lowering.rules.masked import fitted, masked_put, unmasked
from litz_lowering.rules.view import dimension

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
    """The dtype in which elements are combined: ``f32`` for narrow floats, ``i32`` for truth values."""
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
    """A copy of ``base``, the node's result, with ``body`` combined into ``index`` for every point of ``over``.

    Narrow floats are combined in ``f32`` and rounded once; truth values as numbers of which 0 is false.
    """
    kind, held = ctx.output, combine_dtype(base.dtype, mode)

    def value(axes: Axes) -> Expr:
        made = body(axes)
        return build.cast(build.cast(made, kind.dtype) if kind.dtype.is_bool else made, held)

    if held == kind.dtype and base.shape == kind.shape:
        return ctx.scatter(base, over, index, value, mode=mode)
    wide = ctx.temporary(held, base.shape)
    start = base if held == base.dtype else ctx.pointwise(base.load, wide, "wide")
    total = ctx.scatter(
        start, over, index, value, mode=_of_bits(mode, base.dtype), type=wide, name="combined"
    )
    return ctx.pointwise(lambda axes: total.load(axes or (0,)))


def _of_bits(mode: ScatterMode, dtype: DType) -> ScatterMode:
    """How 0 and 1 are combined where they stand for truth values: the sum is the larger, the product the smaller."""
    return _BITS.get(mode, mode) if dtype.is_bool else mode


def zeros(ctx: LoweringContext, kind: TensorType) -> Tensor:
    """An intermediate that is zero everywhere."""
    return ctx.pointwise(lambda axes: build.const(0, kind.dtype), kind, "zeros")


def identity(mode: ScatterMode, dtype: DType) -> int | float:
    """What leaves a value alone when it is combined with it; the extremes of ``dtype`` for min and max."""
    if mode in ("add", "mul"):
        return 0 if mode == "add" else 1
    return extreme(dtype, largest=mode == "min")


# --- scatter along one dimension ----------------------------------------


def _at(ctx: LoweringContext, x: Tensor, d: int, index: Tensor) -> IndexFunction:
    """A point itself, but for dimension ``d`` of ``x``: there ``index`` at the point. Negative indices are errors."""
    return lambda axes: list(replaced(axes, d, ctx.indirect(index.load(axes), x.shape[d], fault="element")))


def _scatter(
    ctx: LoweringContext, x: Tensor, dim: int, index: Tensor, body: UpdateFunction, mode: ScatterMode
) -> Tensor:
    """``body`` into ``x`` at every point of ``index``, whose value is the place along ``dim``."""
    if any(size == 0 for size in index.shape):
        return ctx.pointwise(x.load)
    x, index = lifted(ctx, x), lifted(ctx, index)
    d = dimension(dim, x.rank)
    place = _at(ctx, x, d, index)
    fits = all(k == d or i == s for k, (i, s) in enumerate(zip(index.shape, x.shape, strict=True)))
    if index.shape[d] == 1 and fits and x.shape == ctx.output.shape and _is_fill(ctx.node.args[0]):
        return _chosen(ctx, x, d, place, body, mode)
    return combined(ctx, x, index.shape, place, body, mode)


def _chosen(
    ctx: LoweringContext, x: Tensor, d: int, place: IndexFunction, body: UpdateFunction, mode: ScatterMode
) -> Tensor:
    """At most one write per element, into a tensor that nobody stored: a comparison is cheaper than a scatter."""
    dtype = compute_dtype(combine_dtype(x.dtype, mode))

    def chosen(axes: Axes) -> Expr:
        point = replaced(axes, d, 0)
        here = build.op("eq", build.index(axes[d]), build.index(place(point)[d]))
        held = build.cast(x.load(axes), dtype)
        new = build.cast(body(point), dtype)
        if mode != "set":
            new = build.op(_OPERATION[mode], held, new)
        return build.where(here, new, held)

    return ctx.pointwise(chosen)


def _is_fill(argument: object) -> bool:
    return isinstance(argument, Node) and argument.target in _FILLS


@rule("aten.scatter.src")
def scatter_src(ctx: LoweringContext, x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """``src`` stored at ``index`` along ``dim``; the last one wins."""
    return _scatter(ctx, x, dim, index, lifted(ctx, src).load, "set")


@rule("aten.scatter.value")
def scatter_value(ctx: LoweringContext, x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A number stored at ``index`` along ``dim``."""
    return _scatter(ctx, x, dim, index, lambda axes: ctx.number(value, x.dtype), "set")


@rule("aten.scatter.reduce")
def scatter_with(
    ctx: LoweringContext, x: Tensor, dim: int, index: Tensor, src: Tensor, *, reduce: str
) -> Tensor:
    """``src`` added or multiplied into ``index`` along ``dim``."""
    return _scatter(ctx, x, dim, index, _widened(lifted(ctx, src)), _MODES[reduce])


@rule("aten.scatter.value_reduce")
def scatter_value_with(
    ctx: LoweringContext, x: Tensor, dim: int, index: Tensor, value: Any, *, reduce: str
) -> Tensor:
    """A number added or multiplied into ``index`` along ``dim``."""
    number = ctx.number(value, compute_dtype(x.dtype))
    return _scatter(ctx, x, dim, index, lambda axes: number, _MODES[reduce])


@rule("aten.scatter_add.default")
def scatter_add(ctx: LoweringContext, x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """``src`` added into ``index`` along ``dim``."""
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
    """``src`` combined into ``index`` along ``dim``; without ``include_self`` the elements hit start from nothing."""
    body = _widened(lifted(ctx, src))
    if include_self and reduce != "mean":
        return _scatter(ctx, x, dim, index, body, _MODES[reduce])
    if any(size == 0 for size in index.shape):
        return ctx.pointwise(x.load)
    x, index = lifted(ctx, x), lifted(ctx, index)
    place = _at(ctx, x, dimension(dim, x.rank), index)
    return _reduced(ctx, x, index.shape, place, body, reduce, include_self)


def _reduced(
    ctx: LoweringContext,
    x: Tensor,
    over: Sequence[Size],
    place: IndexFunction,
    body: UpdateFunction,
    reduce: str,
    include_self: bool,
) -> Tensor:
    """``body`` combined into elements as ``reduce`` says."""
    if reduce == "mean":
        return _averaged(ctx, x, over, place, body, include_self)
    mode = _MODES[reduce]
    start = x if include_self else _emptied(ctx, x, over, place, mode)
    return combined(ctx, start, over, place, body, mode)


def _emptied(
    ctx: LoweringContext, x: Tensor, over: Sequence[Size], place: IndexFunction, mode: ScatterMode
) -> Tensor:
    """``x``, its elements that are hit holding what leaves others alone."""
    start = build.const(identity(mode, x.dtype), x.dtype)
    blank = ctx.temporary(x.dtype, x.shape)
    return ctx.scatter(x, over, place, lambda axes: start, type=blank, name="emptied")


def _averaged(
    ctx: LoweringContext,
    x: Tensor,
    over: Sequence[Size],
    place: IndexFunction,
    body: UpdateFunction,
    include_self: bool,
) -> Tensor:
    """Sums divided by how many were added, integers rounded down; as in eager both are counted in the same dtype."""
    held = ctx.temporary(compute_dtype(x.dtype), x.shape)
    start = x if include_self else _emptied(ctx, x, over, place, "add")
    if start.dtype != held.dtype:
        start = ctx.pointwise(start.load, held, "wide")
    one = build.const(1, held.dtype)
    before = ctx.pointwise(lambda axes: one if include_self else build.const(0, held.dtype), held, "before")
    total = ctx.scatter(start, over, place, body, mode="add", type=held, name="total")
    counts = ctx.scatter(before, over, place, lambda axes: one, mode="add", type=held, name="counts")

    def mean(axes: Axes) -> Expr:
        count = Num(counts.load(axes or (0,)))
        divisor = f.where(count.eq(0), 1, count)
        value = Num(total.load(axes or (0,)))
        return (value / divisor if held.dtype.is_float else f.floor_div(value, divisor)).expr

    return ctx.pointwise(mean)


def _widened(src: Tensor) -> UpdateFunction:
    return lambda axes: build.cast(src.load(axes), compute_dtype(src.dtype))


# --- whole slices by index ----------------------------------------


def _slices(
    ctx: LoweringContext, x: Tensor, d: int, index: Tensor, *, wrap: bool = False, fault: str = "index"
) -> IndexFunction:
    """Point ``i`` lands in ``x`` where it is, but for dimension ``d``: there ``index[i]``."""

    def place(axes: Axes) -> list[Size]:
        chosen = ctx.indirect(along(index, axes[d]), x.shape[d], wrap=wrap, fault=fault)
        return list(replaced(axes, d, chosen))

    return place


@rule("aten.index_add.default")
def index_add(
    ctx: LoweringContext, x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1
) -> Tensor:
    """``alpha * source`` added into the slices ``index``."""
    x, source = lifted(ctx, x), lifted(ctx, source)
    wide = combine_dtype(x.dtype, "add")

    def body(axes: Axes) -> Expr:
        value = build.cast(source.load(axes), wide)
        scaled = not (isinstance(alpha, int | float) and alpha == 1)
        return build.op("mul", value, ctx.number(alpha, wide)) if scaled else value

    d = dimension(dim, x.rank)
    # Eager adds to the first and the last dimension of several by a scatter, whose error is another one.
    by_scatter = x.rank > 1 and d in (0, x.rank - 1)
    place = _slices(ctx, x, d, index, fault="element" if by_scatter else "index")
    return combined(ctx, x, source.shape, place, body, "add")


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
    """``source`` combined into the slices ``index``."""
    x, source = lifted(ctx, x), lifted(ctx, source)
    place = _slices(ctx, x, dimension(dim, x.rank), index)
    return _reduced(ctx, x, source.shape, place, _widened(source), reduce, include_self)


@rule("aten.index_copy.default")
def index_copy(ctx: LoweringContext, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """``source`` stored into the slices ``index``."""
    x, source = lifted(ctx, x), lifted(ctx, source)
    place = _slices(ctx, x, dimension(dim, x.rank), index)
    return combined(ctx, x, source.shape, place, source.load, "set")


@rule("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def index_fill(ctx: LoweringContext, x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A number stored into the slices ``index``; negative indices count from the end."""
    x = lifted(ctx, x)
    d = dimension(dim, x.rank)

    def body(axes: Axes) -> Expr:
        return value.load(()) if isinstance(value, Tensor) else ctx.number(value, x.dtype)

    over = replaced(x.shape, d, index.numel)
    return combined(ctx, x, over, _slices(ctx, x, d, index, wrap=True), body, "set")


# --- by position and by advanced index ----------------------------------------


@rule("aten.put.default")
def put(ctx: LoweringContext, x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """``source`` stored at, or added into, row-major positions; negative ones count from the end."""
    x = lifted(ctx, x)

    def place(axes: Axes) -> list[Size]:
        position = ctx.indirect(index.load(axes), x.numel, wrap=True)
        return list(unflatten(position, x.shape))

    def body(axes: Axes) -> Expr:
        value = source.load(reshaped(axes, index.shape, source.shape))
        return build.cast(value, compute_dtype(source.dtype)) if accumulate else value

    return combined(ctx, x, index.shape, place, body, "add" if accumulate else "set")


@rule("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(
    ctx: LoweringContext,
    x: Tensor,
    indices: Sequence[Tensor | None],
    values: Tensor,
    accumulate: bool = False,
) -> Tensor | Declined:
    """``values`` stored at, or added into, what advanced indexing picks; negative indices count from the end."""
    if refused := refused_index(x, indices):
        return refused
    given = [(d, index) for d, index in enumerate(indices) if index is not None]
    sure: frozenset[str] = frozenset()
    if has_masks := masks_in(indices):
        if len(given) == 1:
            return masked_put(ctx, x, given[0][1], given[0][0], values, accumulate)
        indices, sure = unmasked(ctx, indices)
    found = advanced(ctx, x.shape, indices, check=checked(ctx), sure=sure)
    if has_masks:
        values = fitted(ctx, values, found.shape, found.first + len(found.common) - 1)

    def body(axes: Axes) -> Expr:
        value = values.at(axes)
        return build.cast(value, compute_dtype(x.dtype)) if accumulate else value

    if not accumulate:
        return combined(ctx, x, found.shape, found.index, body, "set")
    gathered = None if x.dtype.is_bool else _gathered(ctx, x, found, body)
    return gathered or combined(ctx, x, found.shape, found.index, body, "add")


MAX_GATHERED = 64
"""Up to so many candidates a point gathers what falls on it, rather than that it is scattered."""


@dataclass(frozen=True, slots=True)
class _Route:
    """Dimension ``target`` of the indexed tensor is indexed by a staircase along dimension ``source`` of the values."""

    target: int
    source: int
    inverse: Inverse


def _routes(found: Advanced) -> list[_Route] | None:
    """How each indexed dimension can be followed back; None unless all can, each along a dimension of its own."""
    routes: list[_Route] = []
    for d, (index, known, size) in enumerate(zip(found.indices, found.known, found.sizes)):
        if index is None:
            continue
        inverse = known[0].inverse(size) if known is not None and isinstance(size, int) else None
        if known is None or inverse is None:
            return None
        routes.append(_Route(d, found.first + known[1], inverse))
    sources = {route.source for route in routes}
    alone = all(size == 1 or found.first + d in sources for d, size in enumerate(found.common))
    few = math.prod(route.inverse.extent for route in routes) <= MAX_GATHERED
    return routes if alone and few and len(sources) == len(routes) else None


def _gathered(
    ctx: LoweringContext, x: Tensor, found: Advanced, body: UpdateFunction, *, signed: bool = True
) -> Tensor | None:
    """``x`` and at each point the sum of the ``body`` whose index leads there; None where that cannot be followed back.

    ``body`` is over points of ``found.shape``, in the dtype that sums of ``x`` are held in. Unless ``signed`` is false,
    ``x`` may have negative zeros, which stay where no index leads: adding a sum of nothing makes them positive.
    """
    routes = _routes(found)
    if routes is None:
        return None
    wide = compute_dtype(x.dtype)
    indexed = {route.target for route in routes}
    extents = [route.inverse.extent for route in routes]
    alone = all(extent == 1 for extent in extents)
    # A float plus negative zero is that float, whichever zero it is.
    nothing = -0.0 if alone and wide.is_float else 0

    def leads(point: Axes, numbers: Axes) -> Expr:
        pairs = zip(routes, numbers, strict=True)
        return build.logical_and(
            *(each for r, n in pairs for each in r.inverse.conditions(point[r.target], n))
        )

    def share(point: Axes, numbers: Axes) -> Expr:
        whole = [axis for d, axis in enumerate(point) if d not in indexed]
        axes = [*whole[: found.first], *(0 for _ in found.common), *whole[found.first :]]
        for route, number in zip(routes, numbers, strict=True):
            axes[route.source] = route.inverse.position(point[route.target], number)
        return build.masked(leads(point, numbers), body(tuple(axes)), build.const(nothing, wide))

    def held(point: Axes) -> Expr:
        return build.cast(x.load(point), wide)

    if alone:
        return ctx.pointwise(lambda point: build.op("add", held(point), share(point, (0,) * len(routes))))
    (total,) = ctx.reduction("sum", share, extents, (ctx.temporary(wide, x.shape),), ("gathered",))
    if not (signed and wide.is_float):
        return ctx.pointwise(lambda point: build.op("add", held(point), total.load(point)))
    (any_leads,) = ctx.reduction("any", leads, extents, (ctx.temporary(b1, x.shape),), ("reached",))

    def summed(point: Axes) -> Expr:
        return build.op(
            "where", any_leads.load(point), build.op("add", held(point), total.load(point)), held(point)
        )

    return ctx.pointwise(summed)


@rule("aten._unsafe_masked_index_put_accumulate.default")
def unsafe_masked_index_put(
    ctx: LoweringContext, x: Tensor, mask: Tensor, indices: Sequence[Tensor | None], values: Tensor
) -> Tensor | Declined:
    """``values`` added into what advanced indexing picks, where ``mask`` holds."""
    if masks_in(indices):
        return Declined("how many values a mask takes is data", is_meant=True)
    found = advanced(ctx, x.shape, indices, check="clamped")
    wide = compute_dtype(x.dtype)

    def body(axes: Axes) -> Expr:
        return build.masked(mask.at(axes), build.cast(values.at(axes), wide), build.const(0, wide))

    shape = broadcast(found.shape, mask.shape)
    gathered = _gathered(ctx, x, found, body) if shape == found.shape else None
    return gathered or combined(ctx, x, shape, found.index, body, "add")


def occurrences(ctx: LoweringContext, indices: Tensor, size: Size, dtype: DType) -> Tensor:
    """How often each number below ``size`` is among the indices, an intermediate of ``dtype``."""
    kind = ctx.temporary(dtype, (size,))
    one = build.const(1, dtype)
    return ctx.scatter(
        zeros(ctx, kind), indices.shape, lambda axes: (ctx.indirect(indices.load(axes), size),), lambda axes: one,
        mode="add", type=kind, name="often",
    )  # fmt: skip


@rule("aten.embedding_dense_backward.default")
def embedding_dense_backward(
    ctx: LoweringContext,
    grad: Tensor,
    indices: Tensor,
    num_weights: Size,
    padding_idx: Size,
    scale_grad_by_freq: bool,
) -> Tensor:
    """The gradient of ``embedding``: every row of ``grad`` added to the row that it was read from."""
    wide = compute_dtype(grad.dtype)
    often = occurrences(ctx, indices, num_weights, wide) if scale_grad_by_freq else None

    def body(axes: Axes) -> Expr:
        value = build.cast(grad.load(axes), wide)
        if often is not None:
            place = ctx.indirect(indices.load(axes[: indices.rank]), num_weights)
            value = build.op("div", value, often.load((place,)))
        if isinstance(padding_idx, int) and padding_idx < 0:
            return value
        padding = ctx.number(padding_idx, indices.dtype)
        kept = build.op("ne", indices.load(axes[: indices.rank]), padding)
        return build.masked(kept, value, build.const(0, wide))

    blank = zeros(ctx, ctx.temporary(wide, ctx.output.shape))
    found = advanced(ctx, blank.shape, [indices], wrap=False)
    gathered = _gathered(ctx, blank, found, body, signed=False)
    if gathered is not None:
        return gathered
    if wide == grad.dtype:
        return ctx.scatter(blank, grad.shape, found.index, body, mode="add")
    total = ctx.scatter(blank, grad.shape, found.index, body, mode="add", type=blank.type, name="total")
    return ctx.pointwise(total.load)
