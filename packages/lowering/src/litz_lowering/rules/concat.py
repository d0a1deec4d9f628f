"""Joining, repeating and reordering along dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, add, mod, mul
from litz_lowering.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.registry import rule
from litz_lowering.rules import formula as f
from litz_lowering.rules import index_maps
from litz_lowering.rules.view import dimension

_MOST_TENSORS = 64
"""Tensors that one kernel joins: a kernel of 700 took a minute of the C++ compiler."""
_LONGEST_CHAIN = 64
"""Choices that follow one another; more of them are nested in groups, since what walks an expression recurses."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """The elements from ``begin`` to ``end``, None at the ends of all pieces."""

    begin: Size | None
    end: Size | None
    value: Expr

    def at(self, place: Size, other: Expr) -> Expr:
        """Its value where it covers ``place``, else ``other``."""
        # Both bounds, although the pieces before take their own: what stands in for "other" may be read anywhere.
        bounds = [f.index(place) >= f.index(self.begin)] if self.begin is not None else []
        if self.end is not None:
            bounds.append(f.index(place) < f.index(self.end))
        return build.masked(build.logical_and(*(b.expr for b in bounds)), self.value, other)


def _joined(
    ctx: LoweringContext, pieces: Sequence[tuple[Size, Tensor]], d: int, at: str
) -> Tensor | Declined:
    """Each position along ``d`` read from the piece that covers it, nothing else being read.

    ``pieces`` are (extent along ``d``, tensor); ``at`` says whether a tensor has that dimension.
    """
    if len({tensor.name for _, tensor in pieces}) > _MOST_TENSORS:
        return Declined(f"more than {_MOST_TENSORS} tensors, which ATen copies one by one", is_meant=True)
    dtype = ctx.output.dtype

    def body(axes: Axes) -> Expr:
        spans: list[_Piece] = []
        begin: Size = 0
        for extent, tensor in pieces:
            end = add(begin, extent)
            inside = add(axes[d], mul(begin, -1))
            index = (*axes[:d], inside, *axes[d + 1 :]) if at == "inside" else (*axes[:d], *axes[d + 1 :])
            value = build.cast(tensor.load(index), dtype)
            first, last = not spans, len(spans) + 1 == len(pieces)
            spans.append(_Piece(None if first else begin, None if last else end, value))
            begin = end
        return _covering(spans, axes[d], build.const(0, dtype))

    return ctx.pointwise(body)


def _covering(pieces: Sequence[_Piece], place: Size, otherwise: Expr) -> Expr:
    """The value of the piece that covers ``place``."""
    if len(pieces) > _LONGEST_CHAIN:
        size = isqrt(len(pieces))
        groups = [pieces[k : k + size] for k in range(0, len(pieces), size)]
        grouped = [_Piece(g[0].begin, g[-1].end, _covering(g, place, otherwise)) for g in groups]
        return _covering(grouped, place, otherwise)
    result = otherwise
    for piece in reversed(pieces):
        result = piece.at(place, result)
    return result


@rule("aten.cat.default")
def cat(ctx: LoweringContext, tensors: Sequence[Tensor], dim: int = 0) -> Tensor | Declined:
    """The tensors one after another along ``dim``; empty 1-d tensors are skipped, as eager does."""
    rank = len(ctx.output.shape)
    d = dimension(dim, rank)
    kept = [t for t in tensors if t.rank == rank and t.shape[d] != 0]
    return _joined(ctx, [(t.shape[d], t) for t in kept], d, "inside")


@rule("aten.stack.default")
def stack(ctx: LoweringContext, tensors: Sequence[Tensor], dim: int = 0) -> Tensor | Declined:
    """The tensors along a new dimension."""
    d = dimension(dim, len(ctx.output.shape))
    return _joined(ctx, [(1, t) for t in tensors], d, "new")


@rule("aten.flip.default")
def flip(ctx: LoweringContext, x: Tensor, dims: Sequence[int]) -> Tensor:
    """The elements in reverse order along ``dims``; a copy, as in eager."""
    turned = {dimension(d, x.rank) for d in dims}

    def index(axes: Axes) -> list[Size]:
        return [
            add(x.shape[d], -1, mul(i, -1)) if d in turned and x.shape[d] != 1 else i
            for d, i in enumerate(axes)
        ]

    return ctx.view(x, index, aliases=False)


@rule("aten.roll.default")
def roll(ctx: LoweringContext, x: Tensor, shifts: Sequence[Size], dims: Sequence[int] = ()) -> Tensor:
    """Elements moved by ``shifts``, those that leave one end entering at the other."""
    if any(size == 0 for size in x.shape):
        return ctx.pointwise(x.load)
    if not dims:
        return _roll_flat(ctx, x, shifts[0])
    moved: dict[int, Size] = {}
    for shift, d in zip(shifts, dims, strict=True):
        place = dimension(d, x.rank)
        moved[place] = add(moved.get(place, 0), shift)

    def index(axes: Axes) -> list[Size]:
        return [
            mod(add(i, mul(moved[d], -1)), x.shape[d]) if d in moved and x.shape[d] != 1 else i
            for d, i in enumerate(axes)
        ]

    return ctx.view(x, index, aliases=False)


def _roll_flat(ctx: LoweringContext, x: Tensor, shift: Size) -> Tensor:
    return ctx.view(
        x,
        lambda axes: index_maps.unflatten(
            mod(add(index_maps.flatten(axes, x.shape), mul(shift, -1)), x.numel), x.shape
        ),
        aliases=False,
    )


@rule("aten.repeat.default")
def repeat(ctx: LoweringContext, x: Tensor, repeats: Sequence[Size]) -> Tensor:
    """The tensor tiled."""
    lead = len(repeats) - x.rank
    if any(size == 0 for size in x.shape):
        return ctx.pointwise(lambda axes: build.const(0, x.dtype))

    def index(axes: Axes) -> list[Size]:
        return [
            0 if size == 1 else axis if repeats[lead + d] == 1 else mod(axis, size)
            for d, (axis, size) in enumerate(zip(axes[lead:], x.shape))
        ]

    return ctx.view(x, index, aliases=False)
