"""Writes at row-major positions and by advanced indexing, and the gradient of ``embedding``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from litz_ir.device import CPU
from litz_ir.dtypes import DType, b1, compute_dtype
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size
from litz_lowering.contexts.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions.index_maps import reshaped, unflatten
from litz_lowering.rules.indexing.index import (
    Advanced,
    advanced,
    broadcast,
    checked,
    lifted,
    masks_in,
    refused_index,
)
from litz_lowering.rules.indexing.known_index import Inverse
from litz_lowering.rules.indexing.masked import fitted, masked_put, unmasked
from litz_lowering.rules.indexing.scatter import UpdateFunction, combined, zeros


@rule("aten.put.default")
def put(ctx: LoweringContext, x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Store or add ``source`` at row-major positions; negative ones count from the end."""
    x = lifted(ctx, x)

    def target(axes: Axes) -> list[Size]:
        position = ctx.indirect(index.load(axes), x.numel, wrap=True)
        return list(unflatten(position, x.shape))

    def body(axes: Axes) -> Expr:
        value = source.load(reshaped(axes, index.shape, source.shape))
        return build.cast(value, compute_dtype(source.dtype)) if accumulate else value

    return combined(ctx, x, index.shape, target, body, "add" if accumulate else "set")


@rule("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(
    ctx: LoweringContext,
    x: Tensor,
    indices: Sequence[Tensor | None],
    values: Tensor,
    accumulate: bool = False,
) -> Tensor | Declined:
    """Store or add ``values`` at elements selected by advanced indexing; negative indices count from the end."""
    if refused := refused_index(x, indices):
        return refused
    given = [(d, index) for d, index in enumerate(indices) if index is not None]
    in_bounds: frozenset[str] = frozenset()
    if has_masks := masks_in(indices):
        if len(given) == 1:
            return masked_put(ctx, x, given[0][1], given[0][0], values, accumulate)
        indices, in_bounds = unmasked(ctx, indices)
    found = advanced(ctx, x.shape, indices, check=checked(ctx), in_bounds=in_bounds)
    if has_masks:
        values = fitted(ctx, values, found.shape, found.first + len(found.common) - 1)

    def body(axes: Axes) -> Expr:
        value = values.at(axes)
        return build.cast(value, compute_dtype(x.dtype)) if accumulate else value

    if not accumulate:
        return combined(ctx, x, found.shape, found.index, body, "set")
    gathered = None if x.dtype.is_bool else _gathered(ctx, x, found, body)
    return gathered or combined(ctx, x, found.shape, found.index, body, "add")


_MAX_GATHERED = 64
"""Largest number of candidates per point for which values are gathered instead of scattered."""


@dataclass(frozen=True, slots=True)
class _Route:
    """A dimension of the indexed tensor that a staircase along a dimension of the values indexes."""

    target: int
    """Dimension of the indexed tensor."""
    source: int
    """Dimension of the values."""
    inverse: Inverse


def _routes(found: Advanced) -> list[_Route] | None:
    """Inverse staircase of each indexed dimension; None unless all exist, each along a dimension of its own."""
    routes: list[_Route] = []
    for d, (index, known, size) in enumerate(zip(found.indices, found.known, found.sizes)):
        if index is None:
            continue
        inverse = known[0].inverse(size) if known is not None and isinstance(size, int) else None
        if known is None or inverse is None:
            return None
        routes.append(_Route(d, found.first + known[1], inverse))
    sources = {route.source for route in routes}
    is_separate = all(size == 1 or found.first + d in sources for d, size in enumerate(found.common))
    few = math.prod(route.inverse.extent for route in routes) <= _MAX_GATHERED
    return routes if is_separate and few and len(sources) == len(routes) else None


def _gathered(
    ctx: LoweringContext, x: Tensor, found: Advanced, body: UpdateFunction, *, signed: bool = True
) -> Tensor | None:
    """``x`` plus, at each point, the sum of ``body`` over the indices that lead there; None where indices are not
    invertible.

    ``body`` is over points of ``found.shape``, in the dtype of sums. Negative zeros of ``x`` must stay where no
    index leads, but adding an empty sum makes them positive; ``signed=False`` says that there are none.
    """
    routes = _routes(found)
    if routes is None:
        return None
    wide = compute_dtype(x.dtype)
    indexed = {route.target for route in routes}
    extents = [route.inverse.extent for route in routes]
    is_single = all(extent == 1 for extent in extents)
    # Adding negative zero preserves every float, including both zeros.
    nothing = -0.0 if is_single and wide.is_float else 0

    def is_source(point: Axes, numbers: Axes) -> Expr:
        pairs = zip(routes, numbers, strict=True)
        return build.logical_and(
            *(each for r, n in pairs for each in r.inverse.conditions(point[r.target], n))
        )

    def share(point: Axes, numbers: Axes) -> Expr:
        whole = [axis for d, axis in enumerate(point) if d not in indexed]
        axes = [*whole[: found.first], *(0 for _ in found.common), *whole[found.first :]]
        for route, number in zip(routes, numbers, strict=True):
            axes[route.source] = route.inverse.position(point[route.target], number)
        return build.masked(is_source(point, numbers), body(tuple(axes)), build.const(nothing, wide))

    def old(point: Axes) -> Expr:
        return build.cast(x.load(point), wide)

    if is_single:
        return ctx.pointwise(lambda point: build.op("add", old(point), share(point, (0,) * len(routes))))
    (total,) = ctx.reduction("sum", share, extents, (ctx.temporary(wide, x.shape),), ("gathered",))
    if not (signed and wide.is_float):
        return ctx.pointwise(lambda point: build.op("add", old(point), total.load(point)))
    (any_leads,) = ctx.reduction("any", is_source, extents, (ctx.temporary(b1, x.shape),), ("reached",))

    def summed(point: Axes) -> Expr:
        return build.op(
            "where", any_leads.load(point), build.op("add", old(point), total.load(point)), old(point)
        )

    return ctx.pointwise(summed)


@rule("aten._unsafe_masked_index_put_accumulate.default")
def unsafe_masked_index_put(
    ctx: LoweringContext, x: Tensor, mask: Tensor, indices: Sequence[Tensor | None], values: Tensor
) -> Tensor | Declined:
    """Add ``values`` at elements selected by advanced indexing, where ``mask`` is true."""
    if masks_in(indices):
        return Declined("the number of elements that a mask selects is data-dependent", is_intended=True)
    found = advanced(ctx, x.shape, indices, check="clamped")
    wide = compute_dtype(x.dtype)

    def body(axes: Axes) -> Expr:
        return build.masked(mask.at(axes), build.cast(values.at(axes), wide), build.const(0, wide))

    shape = broadcast(found.shape, mask.shape)
    gathered = _gathered(ctx, x, found, body) if shape == found.shape else None
    return gathered or combined(ctx, x, shape, found.index, body, "add")


def occurrences(ctx: LoweringContext, indices: Tensor, size: Size, dtype: DType) -> Tensor:
    """Number of occurrences of each integer below ``size`` among the indices, an intermediate of ``dtype``."""
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
    """Gradient of ``embedding``: each row of ``grad`` is added to the row that was read.

    A CPU rounds after each addition, as eager does there: a table of sums in ``f32`` is twice as large as the result.
    """
    wide = compute_dtype(grad.dtype)
    frequencies = occurrences(ctx, indices, num_weights, wide) if scale_grad_by_freq else None

    def body(axes: Axes) -> Expr:
        value = build.cast(grad.load(axes), wide)
        if frequencies is not None:
            row = ctx.indirect(indices.load(axes[: indices.rank]), num_weights)
            value = build.op("div", value, frequencies.load((row,)))
        if isinstance(padding_idx, int) and padding_idx < 0:
            return value
        padding = ctx.number(padding_idx, indices.dtype)
        counts = build.op("ne", indices.load(axes[: indices.rank]), padding)
        return build.masked(counts, value, build.const(0, wide))

    rounds = grad.device == CPU and wide != grad.dtype
    blank = zeros(ctx, ctx.temporary(wide, ctx.output.shape))
    found = advanced(ctx, blank.shape, [indices], wrap=False)
    gathered = _gathered(ctx, blank, found, body, signed=False)
    if gathered is not None:
        return gathered
    if rounds:
        blank = zeros(ctx, ctx.temporary(grad.dtype, ctx.output.shape))
    if blank.dtype == grad.dtype:
        return ctx.scatter(blank, grad.shape, found.index, body, mode="add")
    total = ctx.scatter(blank, grad.shape, found.index, body, mode="add", type=blank.type, name="total")
    return ctx.pointwise(total.load)
