"""What masks choose.

Where a mask stands alone, the place of an element among the chosen ones is a running count of the mask. Beside other
index tensors it stands for the places that ATen finds: the index tensors then broadcast by sizes that are data.
"""

from __future__ import annotations

from collections.abc import Sequence

from litz_ir.dtypes import b1, compute_dtype, i64, u8
from litz_ir.loops import Layout, TensorType
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, Symbol, add, free_symbols, minimum, product
from litz_lowering.context import Axes, LoweringContext, Tensor
from litz_lowering.fallback_families import SIZES
from litz_lowering.registry import rule
from litz_lowering.rules import formula as f
from litz_lowering.rules.formula import Num
from litz_lowering.rules.index_maps import flatten, unflatten

_MISMATCH = "shape mismatch: as many values are given as fit no number of elements that the mask chooses"
_TOO_FEW = "Number of elements of source < number of ones in mask"
_APART = "shape mismatch: indexing tensors could not be broadcast together"
_UNFIT = "shape mismatch: the value tensor cannot be broadcast to the indexing result"


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


def _place(ctx: LoweringContext, count: Expr, size: Size, *, is_broadcast: bool = False) -> tuple[Size, Expr]:
    """The index of the ``count``-th of ``size`` elements, and whether there are so many.

    ``is_broadcast``: where there is one element, it is each of them.
    """
    before = build.op("sub", count, build.const(1, i64))
    if is_broadcast and not isinstance(size, int):
        before = f.where(f.index(size).eq(1), 0, Num(before)).expr
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
    ctx: LoweringContext, x: Tensor, mask: Tensor, first: int, values: Tensor, accumulate: bool
) -> Tensor:
    """``values`` in place of, or added to, what ``mask``, over the dimensions from ``first`` on, picks of ``x``."""
    rank = x.rank - mask.rank + 1
    place = values.rank - rank + first
    several = place >= 0 and values.shape[place] != 1
    count: Tensor | None = None
    if several:
        given = f.index(values.shape[place])
        ctx.check((given.eq(Num(_chosen(ctx, mask, mask.shape))) | given.eq(1)).expr, _MISMATCH)
        count = _running_count(ctx, mask, mask.shape)

    def body(axes: Axes) -> Expr:
        own = axes[first : first + mask.rank]
        chosen = build.cast(mask.load(own), b1)
        number: Size = 0
        if count is not None:
            held = count.load((flatten(own, mask.shape),))
            number, inside = _place(ctx, held, values.shape[place], is_broadcast=True)
            chosen = build.logical_and(chosen, inside)
        value = values.at((*axes[:first], number, *axes[first + mask.rank :]))
        before = x.load(axes)
        if accumulate:
            wide = b1 if x.dtype.is_bool else compute_dtype(x.dtype)
            both = build.cast(before, wide), build.cast(value, wide)
            value = build.cast(build.op("bit_or" if wide == b1 else "add", *both), x.dtype)
        choose = build.masked if several else build.where
        return choose(chosen, value, before)

    return ctx.pointwise(body)


# --- masks as index tensors ----------------------------------------


def is_mask(index: Tensor) -> bool:
    """True for an index that picks as many elements as it holds true ones."""
    return index.dtype.is_bool or index.dtype == u8


def mask_positions(ctx: LoweringContext, mask: Tensor, count: Size) -> list[Tensor]:
    """The index of each element that holds, row-major, one tensor of ``count`` positions a dimension."""
    # ATen lays out what it finds dimension by dimension.
    layout = Layout((1, count) if mask.rank > 1 else (1, 1), 0, fixed=True)
    kind = TensorType(i64, (count, mask.rank), layout, mask.device)
    found = ctx.extern("aten.nonzero.default", (mask,), kind, "nonzero", SIZES)
    column = ctx.temporary(i64, (count,), mask.device)
    return [
        ctx.view(found, lambda axes, d=d: (*axes, d), column, name=f"place{d}")  # type: ignore[misc]  # one per dimension
        for d in range(mask.rank)
    ]


def unmasked(
    ctx: LoweringContext, indices: Sequence[Tensor | None], told: Size | None = None
) -> tuple[list[Tensor | None], frozenset[str]]:
    """Index tensors, masks replaced by the places of what they choose, and the names of those places.

    They broadcast against each other as ever, which is checked: how long places are is data. ``told`` is the size of
    their last common dimension where tracing has settled it.
    """
    masks = {i.name: i for i in indices if i is not None and is_mask(i)}
    lengths = [i.shape[-1] for i in indices if i is not None and i.rank and i.name not in masks]
    is_alone = len(masks) == 1 and all(length == 1 for length in lengths)
    count = told if told is not None and is_alone and _is_data(ctx, told) else None
    places = {
        name: mask_positions(ctx, mask, ctx.found_size("count") if count is None else count)
        for name, mask in masks.items()
    }
    common = _agreed(ctx, [*lengths, *(found[0].shape[0] for found in places.values())])
    if told is not None and told != common:
        _settled(ctx, told, common)
        common = told
    stretched = {
        name: [stretched_to(ctx, place, common, -1) for place in found] for name, found in places.items()
    }
    result: list[Tensor | None] = []
    for index in indices:
        if index is None:
            result.append(None)
        else:
            result += stretched.get(index.name) or [stretched_to(ctx, index, common, -1)]
    return result, frozenset(place.name for found in stretched.values() for place in found)


def _is_data(ctx: LoweringContext, size: Size) -> bool:
    return any(map(ctx.builder.symbols.is_data, free_symbols(size)))


def _agreed(ctx: LoweringContext, sizes: Sequence[Size]) -> Size:
    """The size to which sizes broadcast; that they do is checked where it is data."""
    common: Size = 1
    for size in dict.fromkeys(sizes):
        if 1 in (common, size):
            common = size if common == 1 else common
            continue
        a, b = f.index(common), f.index(size)
        ctx.check((a.eq(b) | a.eq(1) | b.eq(1)).expr, _APART, "IndexError")
        if not isinstance(common, int):
            common = ctx.host_integer(f.where(a.eq(1), b, a).expr, "common", 0)
    return common


def _settled(ctx: LoweringContext, told: Size, size: Size) -> None:
    """Give ``told`` the value of ``size``, or check that it has it."""
    if isinstance(told, Symbol) and _is_data(ctx, told) and told.name not in ctx.builder.bound:
        ctx.bind(told.name, build.index(size))
    else:
        ctx.check(f.index(told).eq(f.index(size)).expr, _APART, "IndexError")


def stretched_to(ctx: LoweringContext, x: Tensor, size: Size, d: int) -> Tensor:
    """``x`` with ``size`` elements along dimension ``d``: it has as many, or one, which may be data."""
    if not x.rank or x.shape[d] in (1, size):
        return x
    d %= x.rank
    last = add(x.shape[d], -1)
    kind = ctx.temporary(x.dtype, (*x.shape[:d], size, *x.shape[d + 1 :]), x.device)
    return ctx.view(
        x, lambda axes: (*axes[:d], minimum(axes[d], last), *axes[d + 1 :]), kind, aliases=False,
        name="stretched",
    )  # fmt: skip


def fitted(ctx: LoweringContext, values: Tensor, shape: Sequence[Size], d: int) -> Tensor:
    """Values for a result of ``shape``, whose dimension ``d`` is data: that they broadcast along it is checked."""
    own = d - len(shape)
    if values.rank < -own or values.shape[own] in (1, shape[d]):
        return values
    there, wanted = f.index(values.shape[own]), f.index(shape[d])
    ctx.check((there.eq(wanted) | there.eq(1)).expr, _UNFIT)
    return stretched_to(ctx, values, shape[d], own)
