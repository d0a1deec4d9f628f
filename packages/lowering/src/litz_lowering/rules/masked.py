"""What a mask chooses: the place of an element among the chosen ones is a running count of the mask."""

from __future__ import annotations

from collections.abc import Sequence

from litz_ir.dtypes import b1, compute_dtype, i64
from litz_ir.scalar import build
from litz_ir.scalar.expr import Expr
from litz_ir.symbols.term import Size, product
from litz_lowering.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.registry import rule
from litz_lowering.rules.index_maps import flatten, unflatten

_MISMATCH = "shape mismatch: as many values are given as fit no number of elements that the mask chooses"
_TOO_FEW = "Number of elements of source < number of ones in mask"


def _running_count(ctx: LoweringContext, mask: Tensor, shape: Sequence[Size]) -> Tensor:
    """How many elements of ``mask``, broadcast to ``shape``, hold up to and including each position, row-major."""

    def body(axes: Axes) -> Expr:
        return build.cast(build.cast(mask.at(unflatten(axes[0], shape)), b1), i64)

    return ctx.scan("sum", body, 0, (ctx.temporary(i64, (product(shape),), mask.device),), ("count",))[0]


def _chosen(ctx: LoweringContext, mask: Tensor, shape: Sequence[Size]) -> Expr:
    """How many elements of ``mask``, broadcast to ``shape``, hold."""
    kind = ctx.temporary(i64, (), mask.device)

    def body(_: Axes, inner: Axes) -> Expr:
        return build.cast(build.cast(mask.at(inner), b1), i64)

    return ctx.reduction("sum", body, shape, (kind,), ("chosen",))[0].load(())


def _place(ctx: LoweringContext, count: Expr, size: Size) -> tuple[Size, Expr]:
    """The index of the ``count``-th of ``size`` elements, and whether there are so many."""
    before = build.op("sub", count, build.const(1, i64))
    return ctx.indirect(before, size, check="assumed"), build.op("lt", before, build.index(size))


@rule("aten.masked_scatter.default")
def masked_scatter(ctx: LoweringContext, x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The elements of ``source``, in row-major order, in place of those that ``mask`` chooses."""
    shape = ctx.output.shape
    available = build.index(source.numel)
    ctx.check(build.op("le", _chosen(ctx, mask, shape), available), _TOO_FEW)
    count = _running_count(ctx, mask, shape)

    def body(axes: Axes) -> Expr:
        place, inside = _place(ctx, count.load((flatten(axes, shape),)), source.numel)
        chosen = build.logical_and(mask.at(axes), inside)
        return build.masked(chosen, source.load(unflatten(place, source.shape)), x.at(axes))

    return ctx.pointwise(body)


def masked_put(
    ctx: LoweringContext, x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool
) -> Tensor | Declined:
    """``values`` in place of, or added to, what a single mask among ``indices`` picks of ``x``."""
    masks = [(d, i) for d, i in enumerate(indices) if i is not None]
    if len(masks) != 1:
        return Declined("a mask beside other index tensors")
    first, mask = masks[0]
    rank = x.rank - mask.rank + 1
    place = values.rank - rank + first
    several = place >= 0 and values.shape[place] != 1
    count: Tensor | None = None
    if several:
        fits = build.op("eq", _chosen(ctx, mask, mask.shape), build.index(values.shape[place]))
        ctx.check(fits, _MISMATCH)
        count = _running_count(ctx, mask, mask.shape)

    def body(axes: Axes) -> Expr:
        own = axes[first : first + mask.rank]
        chosen = build.cast(mask.load(own), b1)
        number: Size = 0
        if count is not None:
            number, inside = _place(ctx, count.load((flatten(own, mask.shape),)), values.shape[place])
            chosen = build.logical_and(chosen, inside)
        value = values.at((*axes[:first], number, *axes[first + mask.rank :]))
        held = x.load(axes)
        if accumulate:
            wide = b1 if x.dtype.is_bool else compute_dtype(x.dtype)
            both = build.cast(held, wide), build.cast(value, wide)
            value = build.cast(build.op("bit_or" if wide == b1 else "add", *both), x.dtype)
        choose = build.masked if several else build.where
        return choose(chosen, value, held)

    return ctx.pointwise(body)
