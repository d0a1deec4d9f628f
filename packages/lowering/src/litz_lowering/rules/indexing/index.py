"""Reads through index tensors, with eager's errors for indices out of range."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from litz_ir.dtypes import b1, i32, i64
from litz_ir.scalar import BoundsCheck, Expr, build
from litz_ir.symbols import Size
from litz_lowering.aten.fallback_families import SIZES
from litz_lowering.contexts.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions.index_maps import unflatten
from litz_lowering.rules.indexing.known_index import Stair, stair_of
from litz_lowering.rules.indexing.masked import is_mask, mask_positions, unmasked
from litz_lowering.rules.indexing.view import dimension

IndexFunction = Callable[[Axes], list[Size]]
"""Index into the indexed tensor at a point of the loop."""


@rule("aten.embedding.default")
def embedding(
    ctx: LoweringContext,
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Row ``indices[i]`` of ``weight`` at every ``i``; negative indices are errors."""
    found = advanced(ctx, weight.shape, [indices], wrap=False)
    return ctx.pointwise(lambda axes: weight.load(found.index(axes)))


@rule("aten.index_select.default")
def index_select(ctx: LoweringContext, x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Elements ``index`` of one dimension; negative indices raise eager's error classes of the CPU."""
    is_scalar = x.rank == 0
    x = lifted(ctx, x)
    d = dimension(dim, x.rank)
    fault = "element" if d == 1 else "index"

    def body(axes: Axes) -> Expr:
        point = (0,) if is_scalar else axes
        return x.load(replaced(point, d, ctx.indirect(along(index, point[d]), x.shape[d], fault=fault)))

    return ctx.pointwise(body)


@rule("aten.gather.default")
def gather(ctx: LoweringContext, x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """``x`` at the point, with the index along ``dim`` read from ``index``; negative ones are errors."""
    if any(size == 0 for size in index.shape):
        return ctx.pointwise(lambda axes: build.const(0, x.dtype))
    x = lifted(ctx, x)
    d = dimension(dim, x.rank)
    # Losses that torch decomposes into a gather raise a different error.
    fault = "target" if "nll_loss" in str(ctx.node.meta.get("original_aten")) else "element"

    def body(axes: Axes) -> Expr:
        return x.load(
            replaced(axes or (0,), d, ctx.indirect(index.load(axes[: index.rank]), x.shape[d], fault=fault))
        )

    return ctx.pointwise(body)


@rule("aten.take.default")
def take(ctx: LoweringContext, x: Tensor, index: Tensor) -> Tensor:
    """Elements at row-major positions; negative ones count from the end."""

    def body(axes: Axes) -> Expr:
        return x.load(unflatten(ctx.indirect(index.load(axes), x.numel, wrap=True), x.shape))

    return ctx.pointwise(body)


@rule("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index_tensor(ctx: LoweringContext, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor | Declined:
    """Advanced indexing: index tensors broadcast against each other; negative indices count from the end.

    A mask acts as the positions of its true elements.
    """
    if refused := refused_index(x, indices):
        return refused
    in_bounds: frozenset[str] = frozenset()
    if masks_in(indices):
        rank = max(1 if is_mask(i) else i.rank for i in indices if i is not None)
        known_size = ctx.output.shape[_leading(indices) + rank - 1]
        indices, in_bounds = unmasked(ctx, indices, known_size)
    found = advanced(ctx, x.shape, indices, check=checked(ctx), in_bounds=in_bounds)
    return ctx.pointwise(lambda axes: x.load(found.index(axes)))


@rule("aten._unsafe_masked_index.default")
def unsafe_masked_index(
    ctx: LoweringContext, x: Tensor, mask: Tensor, indices: Sequence[Tensor | None], fill: Expr | Size | float
) -> Tensor | Declined:
    """Advanced indexing where ``mask`` is true, else ``fill``; indices are read and valid only where it is true.

    Of a tensor without elements all results are ``fill``.
    """
    if masks_in(indices):
        return Declined(SIZES, is_intended=True)
    if x.is_empty:
        return ctx.pointwise(lambda axes: ctx.number(fill, x.dtype))
    found = advanced(ctx, x.shape, indices, check="assumed")

    def body(axes: Axes) -> Expr:
        return build.masked(mask.at(axes), x.load(found.index(axes)), ctx.number(fill, x.dtype))

    return ctx.pointwise(body)


# --- masked selection ----------------------------------------


@rule("aten.masked_select.default")
def masked_select(ctx: LoweringContext, x: Tensor, mask: Tensor) -> Tensor:
    """Elements that ``mask`` selects, in row-major order."""
    shape = broadcast(x.shape, mask.shape)
    full_mask = ctx.pointwise(mask.at, ctx.temporary(b1, shape, mask.device), "mask")
    positions = mask_positions(ctx, full_mask, ctx.output.shape[0])

    def body(axes: Axes) -> Expr:
        index = tuple(
            ctx.indirect(position.load(axes), size, check="assumed")
            for position, size in zip(positions, shape, strict=True)
        )
        return x.at(index)

    return ctx.pointwise(body)


# --- shared with scatters ----------------------------------------


def lifted(ctx: LoweringContext, x: Tensor) -> Tensor:
    """The tensor; a 0-d tensor is viewed as one element in one dimension."""
    if x.rank:
        return x
    return ctx.view(x, lambda axes: (), ctx.temporary(x.dtype, (1,), x.device), name=f"{x.name}_lifted")


def replaced(axes: Axes, d: int, term: Size) -> Axes:
    """The index with entry ``d`` replaced."""
    return (*axes[:d], term, *axes[d + 1 :])


def along(index: Tensor, axis: Size) -> Expr:
    """Element ``axis`` of a 1-d index tensor; a 0-d one counts as size 1."""
    return index.load((axis,) if index.rank else ())


def checked(ctx: LoweringContext) -> BoundsCheck:
    """Bounds check of the node: operators named ``_unsafe`` promise indices in range."""
    return "assumed" if "_unsafe" in str(ctx.node.target) else "raised"


def masks_in(indices: Sequence[Tensor | None]) -> bool:
    """True when an index is a mask, so that the number of selected elements depends on its values."""
    return any(i is not None and is_mask(i) for i in indices)


def refused_index(x: Tensor, indices: Sequence[Tensor | None]) -> Declined | None:
    """Decline index tensors for which ATen raises: other dtypes, and masks of other shapes."""
    d = 0
    for index in indices:
        if index is None or not is_mask(index):
            if index is not None and index.dtype not in (i64, i32):
                return Declined("index tensors must be int32, int64 or masks", is_intended=True)
            d += 1
            continue
        if not index.rank:
            return Declined("a mask is 0-d")
        if index.shape != x.shape[d : d + index.rank]:
            return Declined(
                "the shape of a mask is not provably that of the indexed dimensions", is_intended=True
            )
        d += index.rank
    return None


def _leading(indices: Sequence[Tensor | None]) -> int:
    """Number of dimensions of the indexed tensor before those of the index tensors.

    Adjacent index tensors keep their position; others move to the front.
    """
    given = [d for d, index in enumerate(indices) if index is not None]
    is_adjacent = bool(given) and given == list(range(given[0], given[-1] + 1))
    return given[0] if is_adjacent else 0


def broadcast(*shapes: Sequence[Size]) -> tuple[Size, ...]:
    """Broadcast shapes that are known to agree."""
    rank = max(map(len, shapes), default=0)
    result: list[Size] = [1] * rank
    for shape in shapes:
        for d, size in enumerate(shape, rank - len(shape)):
            if size != 1:
                result[d] = size
    return tuple(result)


@dataclass(frozen=True, slots=True)
class Advanced:
    """Advanced indexing of a tensor of shape ``sizes``; made by :func:`advanced`."""

    ctx: LoweringContext
    sizes: tuple[Size, ...]
    indices: tuple[Tensor | None, ...]
    """Index tensor of each dimension; None for the whole dimension."""
    check: BoundsCheck
    wrap: bool
    known: tuple[tuple[Stair, int] | None, ...]
    """Known staircase of each index tensor, with the dimension of the broadcast index tensors along which it
    varies."""
    in_bounds: frozenset[str] = frozenset()
    """Names of index tensors that are in range by construction."""

    @property
    def common(self) -> tuple[Size, ...]:
        """Shape to which the index tensors broadcast."""
        return broadcast(*(index.shape for index in self.indices if index is not None))

    @property
    def first(self) -> int:
        """Number of dimensions of the result before those of the index tensors: see :func:`_leading`."""
        return _leading(self.indices)

    @property
    def shape(self) -> tuple[Size, ...]:
        """Shape of the indexing result."""
        whole = [size for size, index in zip(self.sizes, self.indices) if index is None]
        return (*whole[: self.first], *self.common, *whole[self.first :])

    def index(self, axes: Axes) -> list[Size]:
        """Index into the tensor at a point of :attr:`shape`."""
        first, count = self.first, len(self.common)
        chosen = axes[first : first + count]
        whole = iter((*axes[:first], *axes[first + count :]))
        result: list[Size] = []
        for size, index, known in zip(self.sizes, self.indices, self.known):
            if index is None:
                result.append(next(whole))
            elif known is not None:
                result.append(known[0].term(chosen[known[1]]))
            elif index.name in self.in_bounds:
                result.append(self.ctx.indirect(index.at(chosen), size, check="assumed"))
            else:
                result.append(self.ctx.indirect(index.at(chosen), size, wrap=self.wrap, check=self.check))
        return result


def advanced(
    ctx: LoweringContext,
    sizes: tuple[Size, ...],
    indices: Sequence[Tensor | None],
    *,
    check: BoundsCheck = "raised",
    wrap: bool = True,
    in_bounds: frozenset[str] = frozenset(),
) -> Advanced:
    """Advanced indexing of a tensor of shape ``sizes``; missing index tensors select whole dimensions.

    ``wrap``: negative indices count from the end. ``in_bounds`` names index tensors that need no wrapping and no
    check.
    """
    padded = (*indices, *(None for _ in range(len(sizes) - len(indices))))
    rank = max((index.rank for index in indices if index is not None), default=0)
    known: list[tuple[Stair, int] | None] = []
    for index, size in zip(padded, sizes, strict=True):
        found = None if index is None else stair_of(ctx.builder, index, size, wrap=wrap)
        known.append(None if found is None or index is None else (found[0], found[1] + rank - index.rank))
    return Advanced(ctx, sizes, padded, check, wrap, tuple(known), in_bounds)
