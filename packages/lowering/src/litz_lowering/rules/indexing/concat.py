"""Concatenation, repetition and reordering along dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, add, mod, mul
from litz_lowering.contexts.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions import formula as f
from litz_lowering.expressions import index_maps
from litz_lowering.rules.indexing.view import dimension

_MAX_TENSORS = 64
"""Largest number of tensors that one kernel concatenates; one of 700 took the C++ compiler a minute."""
_LONGEST_CHAIN = 64
"""Longest chain of nested conditions. More are nested in groups, since expressions are traversed recursively."""


@dataclass(frozen=True, slots=True)
class _Segment:
    """Positions from ``begin`` to ``end`` of a concatenation; None at its two ends."""

    begin: Size | None
    end: Size | None
    value: Expr

    def at(self, position: Size, other: Expr) -> Expr:
        """Value of the segment where it covers ``position``, else ``other``."""
        # Both bounds are tested, since a lowered mask may evaluate "other" at any position.
        bounds = [f.index(position) >= f.index(self.begin)] if self.begin is not None else []
        if self.end is not None:
            bounds.append(f.index(position) < f.index(self.end))
        return build.masked(build.logical_and(*(b.expr for b in bounds)), self.value, other)


def _joined(
    ctx: LoweringContext, tensors_of_extent: Sequence[tuple[Size, Tensor]], d: int, layout: str
) -> Tensor | Declined:
    """Concatenation along ``d`` that reads only the tensor that covers each position.

    ``tensors_of_extent`` are pairs (extent along ``d``, tensor). ``layout`` is ``inside`` where the tensors have
    that dimension, and ``new`` where it is added.
    """
    if len({tensor.name for _, tensor in tensors_of_extent}) > _MAX_TENSORS:
        return Declined(f"more than {_MAX_TENSORS} tensors are copied one by one in ATen", is_intended=True)
    dtype = ctx.output.dtype

    def body(axes: Axes) -> Expr:
        spans: list[_Segment] = []
        begin: Size = 0
        for extent, tensor in tensors_of_extent:
            end = add(begin, extent)
            inside = add(axes[d], mul(begin, -1))
            index = (*axes[:d], inside, *axes[d + 1 :]) if layout == "inside" else (*axes[:d], *axes[d + 1 :])
            value = build.cast(tensor.load(index), dtype)
            first, last = not spans, len(spans) + 1 == len(tensors_of_extent)
            spans.append(_Segment(None if first else begin, None if last else end, value))
            begin = end
        return _covering(spans, axes[d], build.const(0, dtype))

    return ctx.pointwise(body)


def _covering(segments: Sequence[_Segment], position: Size, otherwise: Expr) -> Expr:
    """Value of the segment that covers ``position``."""
    if len(segments) > _LONGEST_CHAIN:
        size = isqrt(len(segments))
        groups = [segments[k : k + size] for k in range(0, len(segments), size)]
        grouped = [_Segment(g[0].begin, g[-1].end, _covering(g, position, otherwise)) for g in groups]
        return _covering(grouped, position, otherwise)
    result = otherwise
    for segment in reversed(segments):
        result = segment.at(position, result)
    return result


@rule("aten.cat.default")
def cat(ctx: LoweringContext, tensors: Sequence[Tensor], dim: int = 0) -> Tensor | Declined:
    """Concatenate along ``dim``; empty 1-d tensors are skipped, as in eager."""
    rank = len(ctx.output.shape)
    d = dimension(dim, rank)
    nonempty = [t for t in tensors if t.rank == rank and t.shape[d] != 0]
    return _joined(ctx, [(t.shape[d], t) for t in nonempty], d, "inside")


@rule("aten.stack.default")
def stack(ctx: LoweringContext, tensors: Sequence[Tensor], dim: int = 0) -> Tensor | Declined:
    """Concatenate along a new dimension."""
    d = dimension(dim, len(ctx.output.shape))
    return _joined(ctx, [(1, t) for t in tensors], d, "new")


@rule("aten.flip.default")
def flip(ctx: LoweringContext, x: Tensor, dims: Sequence[int]) -> Tensor:
    """Reverse the order of elements along ``dims``; a copy, as in eager."""
    reversed_dims = {dimension(d, x.rank) for d in dims}

    def index(axes: Axes) -> list[Size]:
        return [
            add(x.shape[d], -1, mul(i, -1)) if d in reversed_dims and x.shape[d] != 1 else i
            for d, i in enumerate(axes)
        ]

    return ctx.view(x, index, aliases=False)


@rule("aten.roll.default")
def roll(ctx: LoweringContext, x: Tensor, shifts: Sequence[Size], dims: Sequence[int] = ()) -> Tensor:
    """Shift elements cyclically along dimensions."""
    if any(size == 0 for size in x.shape):
        return ctx.pointwise(x.load)
    if not dims:
        return _roll_flat(ctx, x, shifts[0])
    moved: dict[int, Size] = {}
    for shift, d in zip(shifts, dims, strict=True):
        own = dimension(d, x.rank)
        moved[own] = add(moved.get(own, 0), shift)

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
    """Repeat the tensor along each dimension."""
    lead = len(repeats) - x.rank
    if any(size == 0 for size in x.shape):
        return ctx.pointwise(lambda axes: build.const(0, x.dtype))

    def index(axes: Axes) -> list[Size]:
        return [
            0 if size == 1 else axis if repeats[lead + d] == 1 else mod(axis, size)
            for d, (axis, size) in enumerate(zip(axes[lead:], x.shape))
        ]

    return ctx.view(x, index, aliases=False)
