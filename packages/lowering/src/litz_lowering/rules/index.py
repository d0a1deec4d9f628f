"""Reads through index tensors: the index comes from a value, and what lies outside raises as in eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from litz_ir.scalar import build
from litz_ir.scalar.expr import Check, Expr
from litz_ir.symbols.term import Size
from litz_lowering.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.registry import rule
from litz_lowering.rules.index_maps import unflatten
from litz_lowering.rules.view import dimension

Place = Callable[[Axes], list[Size]]
"""The index in the indexed tensor that belongs to a point."""


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

    def body(axes: Axes) -> Expr:
        row = ctx.indirect(indices.load(axes[: indices.rank]), weight.shape[0])
        return weight.load((row, *axes[indices.rank :]))

    return ctx.pointwise(body)


@rule("aten.index_select.default")
def index_select(ctx: LoweringContext, x: Tensor, dim: int, index: Tensor) -> Tensor | Declined:
    """The elements ``index`` of one dimension; negative indices are errors."""
    if x.rank == 0:
        return Declined("index_select of a 0-d tensor")
    d = dimension(dim, x.rank)
    return ctx.pointwise(
        lambda axes: x.load(replaced(axes, d, ctx.indirect(along(index, axes[d]), x.shape[d])))
    )


@rule("aten.gather.default")
def gather(
    ctx: LoweringContext, x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False
) -> Tensor | Declined:
    """``x`` at the point itself, but for dimension ``dim``, where it is ``index`` there; negative ones are errors."""
    if x.rank == 0 or index.rank == 0:
        return Declined("gather of a 0-d tensor")
    d = dimension(dim, x.rank)
    return ctx.pointwise(lambda axes: x.load(replaced(axes, d, ctx.indirect(index.load(axes), x.shape[d]))))


@rule("aten.take.default")
def take(ctx: LoweringContext, x: Tensor, index: Tensor) -> Tensor:
    """The elements at row-major positions; negative ones count from the end."""

    def body(axes: Axes) -> Expr:
        return x.load(unflatten(ctx.indirect(index.load(axes), x.numel, wrap=True), x.shape))

    return ctx.pointwise(body)


@rule("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index_tensor(ctx: LoweringContext, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor | Declined:
    """Advanced indexing: index tensors broadcast against each other; negative indices count from the end."""
    if masks_in(indices):
        return Declined("the size of a result chosen by a mask is data")
    found = Advanced(ctx, x, indices, "assumed" if "_unsafe" in str(ctx.node.target) else "raised")
    return ctx.pointwise(lambda axes: x.load(found.place(axes)))


@rule("aten._unsafe_masked_index.default")
def unsafe_masked_index(
    ctx: LoweringContext, x: Tensor, mask: Tensor, indices: Sequence[Tensor | None], fill: Expr | Size | float
) -> Tensor | Declined:
    """Advanced indexing where ``mask`` holds, else ``fill``; indices are read, and right, only where it holds."""
    if masks_in(indices):
        return Declined("the size of a result chosen by a mask is data")
    found = Advanced(ctx, x, indices, "assumed")

    def body(axes: Axes) -> Expr:
        return build.masked(mask.at(axes), x.load(found.place(axes)), ctx.number(fill, x.dtype))

    return ctx.pointwise(body)


# --- what scatters share ----------------------------------------


def replaced(axes: Axes, d: int, term: Size) -> Axes:
    """The index with its entry ``d`` replaced."""
    return (*axes[:d], term, *axes[d + 1 :])


def along(index: Tensor, axis: Size) -> Expr:
    """Element ``axis`` of an index tensor of one dimension; one of none stands for one of size 1."""
    return index.load((axis,) if index.rank else ())


def masks_in(indices: Sequence[Tensor | None]) -> bool:
    """True when an index is a mask, so that how many elements it picks depends on its values."""
    return any(i is not None and (i.dtype.is_bool or i.dtype.bits == 8) for i in indices)


def broadcast(*shapes: Sequence[Size]) -> tuple[Size, ...]:
    """The shape to which shapes that are known to agree broadcast."""
    rank = max(map(len, shapes), default=0)
    result: list[Size] = [1] * rank
    for shape in shapes:
        for d, size in enumerate(shape, rank - len(shape)):
            if size != 1:
                result[d] = size
    return tuple(result)


@dataclass(frozen=True, slots=True)
class Advanced:
    """Advanced indexing of ``x`` by ``indices``, None (and what is missing) standing for a whole dimension.

    The dimensions of the broadcast index tensors come where these stand when they stand side by side, else first.
    """

    ctx: LoweringContext
    x: Tensor
    indices: Sequence[Tensor | None]
    check: Check

    @property
    def _given(self) -> list[int]:
        return [d for d, index in enumerate(self.indices) if index is not None]

    @property
    def _whole(self) -> list[int]:
        given = set(self._given)
        return [d for d in range(self.x.rank) if d not in given]

    @property
    def _common(self) -> tuple[Size, ...]:
        return broadcast(*(index.shape for index in self.indices if index is not None))

    @property
    def _first(self) -> int:
        """How many dimensions of the result come before those of the index tensors."""
        given = self._given
        adjacent = bool(given) and given == list(range(given[0], given[-1] + 1))
        return given[0] if adjacent else 0

    @property
    def shape(self) -> tuple[Size, ...]:
        """The shape of what is indexed."""
        sizes = [self.x.shape[d] for d in self._whole]
        return (*sizes[: self._first], *self._common, *sizes[self._first :])

    def place(self, axes: Axes) -> list[Size]:
        """The index in ``x`` that belongs to a point of :attr:`shape`."""
        first, count = self._first, len(self._common)
        chosen = axes[first : first + count]
        whole = iter((*axes[:first], *axes[first + count :]))
        result: list[Size] = []
        for d, size in enumerate(self.x.shape):
            index = self.indices[d] if d < len(self.indices) else None
            if index is None:
                result.append(next(whole))
            else:
                result.append(self.ctx.indirect(index.at(chosen), size, wrap=True, check=self.check))
        return result
