"""Masked selection and assignment.

Where a mask is the only index, the rank of an element among the selected ones is a running count of the mask.
Next to other index tensors a mask becomes the positions that ATen's ``nonzero`` finds, and the index tensors
broadcast by data-dependent sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

from litz_ir.dtypes import b1, compute_dtype, i64, u8
from litz_ir.loops import Layout, TensorType
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, Symbol, add, free_symbols, minimum, product
from litz_lowering.aten.fallback_families import SIZES
from litz_lowering.contexts.context import Axes, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num
from litz_lowering.expressions.index_maps import flatten, unflatten

_MISMATCH = "shape mismatch: as many values are given as fit no number of elements that the mask chooses"
_TOO_FEW = "Number of elements of source < number of ones in mask"
_NOT_BROADCASTABLE = "shape mismatch: indexing tensors could not be broadcast together"
_UNFIT = "shape mismatch: the value tensor cannot be broadcast to the indexing result"


def _running_count(ctx: LoweringContext, mask: Tensor, shape: Sequence[Size]) -> Tensor:
    """Inclusive running count of true elements of ``mask``, broadcast to ``shape``, in row-major order."""

    def body(axes: Axes) -> Expr:
        return build.cast(build.cast(mask.at(unflatten(axes[0], shape)), b1), i64)

    return ctx.scan("sum", body, 0, (ctx.temporary(i64, (product(shape),), mask.device),), ("count",))[0]


def _chosen(ctx: LoweringContext, mask: Tensor, shape: Sequence[Size]) -> Expr:
    """Number of true elements of ``mask``, broadcast to ``shape``."""
    kind = ctx.temporary(i64, (), mask.device)

    def body(_: Axes, inner: Axes) -> Expr:
        return build.cast(build.cast(mask.at(inner), b1), i64)

    return ctx.reduction("sum", body, shape, (kind,), ("chosen",))[0].load(())


def _element_number(
    ctx: LoweringContext, count: Expr, size: Size, *, is_broadcast: bool = False
) -> tuple[Size, Expr]:
    """Index of the ``count``-th of ``size`` elements, and True where there are so many.

    ``is_broadcast``: a single element stands for each of them.
    """
    before = build.op("sub", count, build.const(1, i64))
    if is_broadcast and not isinstance(size, int):
        before = f.where(f.index(size).eq(1), 0, Num(before)).expr
    return ctx.indirect(before, size, check="assumed"), build.op("lt", before, build.index(size))


@rule("aten.masked_scatter.default")
def masked_scatter(ctx: LoweringContext, x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Replace elements that ``mask`` selects by those of ``source``, in row-major order."""
    shape = ctx.output.shape
    available = build.index(source.numel)
    ctx.check(build.op("le", _chosen(ctx, mask, shape), available), _TOO_FEW)
    count = _running_count(ctx, mask, shape)

    def body(axes: Axes) -> Expr:
        position, inside = _element_number(ctx, count.load((flatten(axes, shape),)), source.numel)
        chosen = build.logical_and(mask.at(axes), inside)
        return build.masked(chosen, source.load(unflatten(position, source.shape)), x.at(axes))

    return ctx.pointwise(body)


def masked_put(
    ctx: LoweringContext, x: Tensor, mask: Tensor, first: int, values: Tensor, accumulate: bool
) -> Tensor:
    """Write or add ``values`` where ``mask`` is true, over the dimensions of ``x`` from ``first`` on."""
    rank = x.rank - mask.rank + 1
    dim = values.rank - rank + first
    several = dim >= 0 and values.shape[dim] != 1
    count: Tensor | None = None
    if several:
        given = f.index(values.shape[dim])
        ctx.check((given.eq(Num(_chosen(ctx, mask, mask.shape))) | given.eq(1)).expr, _MISMATCH)
        count = _running_count(ctx, mask, mask.shape)

    def body(axes: Axes) -> Expr:
        own = axes[first : first + mask.rank]
        chosen = build.cast(mask.load(own), b1)
        number: Size = 0
        if count is not None:
            ordinal = count.load((flatten(own, mask.shape),))
            number, inside = _element_number(ctx, ordinal, values.shape[dim], is_broadcast=True)
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
    """True for an index that selects as many elements as it has true ones."""
    return index.dtype.is_bool or index.dtype == u8


def mask_positions(ctx: LoweringContext, mask: Tensor, count: Size) -> list[Tensor]:
    """Positions of true elements, row-major: an ``i64`` tensor of ``count`` for each dimension."""
    # ATen returns a transposed tensor, with the positions along each dimension contiguous.
    layout = Layout((1, count) if mask.rank > 1 else (1, 1), 0, fixed=True)
    kind = TensorType(i64, (count, mask.rank), layout, mask.device)
    found = ctx.extern("aten.nonzero.default", (mask,), kind, "nonzero", SIZES)
    column = ctx.temporary(i64, (count,), mask.device)
    return [
        ctx.view(found, lambda axes, d=d: (*axes, d), column, name=f"place{d}")  # type: ignore[misc]  # one per dimension
        for d in range(mask.rank)
    ]


def unmasked(
    ctx: LoweringContext, indices: Sequence[Tensor | None], known_size: Size | None = None
) -> tuple[list[Tensor | None], frozenset[str]]:
    """Replace masks among index tensors by the positions of their true elements; also returns the names of these.

    The index tensors broadcast against each other; since the numbers of positions are data-dependent, that is
    checked at run time. ``known_size`` is the size of their last common dimension where tracing has decided it.
    """
    masks = {i.name: i for i in indices if i is not None and is_mask(i)}
    lengths = [i.shape[-1] for i in indices if i is not None and i.rank and i.name not in masks]
    is_alone = len(masks) == 1 and all(length == 1 for length in lengths)
    count = known_size if known_size is not None and is_alone and _is_unbacked(ctx, known_size) else None
    positions = {
        name: mask_positions(ctx, mask, ctx.unbacked_size("count") if count is None else count)
        for name, mask in masks.items()
    }
    common = _common_size(ctx, [*lengths, *(found[0].shape[0] for found in positions.values())])
    if known_size is not None and known_size != common:
        _bind_size(ctx, known_size, common)
        common = known_size
    stretched = {
        name: [_stretched_to(ctx, position, common, -1) for position in found]
        for name, found in positions.items()
    }
    result: list[Tensor | None] = []
    for index in indices:
        if index is None:
            result.append(None)
        else:
            result += stretched.get(index.name) or [_stretched_to(ctx, index, common, -1)]
    return result, frozenset(position.name for found in stretched.values() for position in found)


def _is_unbacked(ctx: LoweringContext, size: Size) -> bool:
    return any(map(ctx.builder.symbols.is_unbacked, free_symbols(size)))


def _common_size(ctx: LoweringContext, sizes: Sequence[Size]) -> Size:
    """Size to which sizes broadcast; data-dependent sizes are checked at run time."""
    common: Size = 1
    for size in dict.fromkeys(sizes):
        if 1 in (common, size):
            common = size if common == 1 else common
            continue
        a, b = f.index(common), f.index(size)
        ctx.check((a.eq(b) | a.eq(1) | b.eq(1)).expr, _NOT_BROADCASTABLE, "IndexError")
        if not isinstance(common, int):
            common = ctx.host_integer(f.where(a.eq(1), b, a).expr, "common", 0)
    return common


def _bind_size(ctx: LoweringContext, known_size: Size, size: Size) -> None:
    """Define ``known_size`` as ``size``, or check that they are equal."""
    if (
        isinstance(known_size, Symbol)
        and _is_unbacked(ctx, known_size)
        and known_size.name not in ctx.builder.bound
    ):
        ctx.bind(known_size.name, build.index(size))
    else:
        ctx.check(f.index(known_size).eq(f.index(size)).expr, _NOT_BROADCASTABLE, "IndexError")


def _stretched_to(ctx: LoweringContext, x: Tensor, size: Size, d: int) -> Tensor:
    """Expand ``x`` to ``size`` along dimension ``d``, where its size is ``size`` or 1 and may be data-dependent."""
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
    """Expand values for a result of ``shape`` along its data-dependent dimension ``d``; raises at run time unless
    they broadcast."""
    own = d - len(shape)
    if values.rank < -own or values.shape[own] in (1, shape[d]):
        return values
    actual, wanted = f.index(values.shape[own]), f.index(shape[d])
    ctx.check((actual.eq(wanted) | actual.eq(1)).expr, _UNFIT)
    return _stretched_to(ctx, values, shape[d], own)
