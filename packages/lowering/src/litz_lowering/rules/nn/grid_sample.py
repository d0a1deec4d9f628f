"""Grid sampling: interpolation at computed positions, with gradients of the input and of the positions.

The forward is a weighted sum of each position's neighbours. The backward scatters to them and, for the positions,
uses the derivatives of the weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from litz_ir.device import CPU
from litz_ir.dtypes import DType, compute_dtype, i32, i64
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, floordiv, mod, product
from litz_lowering.contexts.context import Axes, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num, extreme
from litz_lowering.rules.indexing.scatter import zeros
from litz_lowering.rules.nn.resampling_kernels import keys, keys_slope

Padding = Literal["zeros", "border", "reflection"]
_Mode = Literal["linear", "nearest", "cubic"]

_MODES: tuple[_Mode, ...] = ("linear", "nearest", "cubic")
_PADDINGS: tuple[Padding, ...] = ("zeros", "border", "reflection")
"""Padding modes in the order of ATen's enumeration; :data:`_MODES` lists interpolation modes likewise."""

_FEW_CHANNELS = 4
"""Below so many channels each result computes its neighbours, which takes less than to store and load them."""

_CUBIC = -0.75
"""Parameter of the cubic kernel, as in eager."""


@dataclass(frozen=True, slots=True)
class _Sampling:
    """Interpolation mode, padding mode and ``align_corners``, with the dtype of positions."""

    mode: _Mode
    padding: Padding
    corners: bool
    dtype: DType

    @property
    def reach(self) -> int:
        """Number of neighbours per dimension."""
        return {"linear": 2, "nearest": 1, "cubic": 4}[self.mode]

    def size(self, size: Size) -> Num:
        """Size of a dimension as a value."""
        return f.index(size).to(self.dtype)

    def scale(self, size: Size) -> Num:
        """Elements per unit of a normalised coordinate."""
        return (self.size(size) - 1) / 2 if self.corners else self.size(size) / 2

    def unnormalized(self, coordinate: Num, size: Size) -> Num:
        """Convert a coordinate in [-1, 1] to elements."""
        moved = (coordinate + 1) * self.scale(size)
        return moved if self.corners else moved - 0.5

    def inside(self, position: Num, size: Size) -> tuple[Num, Num]:
        """Position after padding, and its derivative by the position before."""
        one = position.like(1)
        if self.padding == "zeros":
            return position, one
        slope = one
        if self.padding == "reflection":
            position, slope = self._reflected(position, size)
        last = self.size(size) - 1
        free = (position > 0) & (position < last)
        # A NaN becomes the first element, since comparisons with it are false.
        clamped = f.where(position > 0, f.where(position < last, position, last), 0)
        return clamped, f.where(free, slope, 0)

    def _reflected(self, position: Num, size: Size) -> tuple[Num, Num]:
        low = position.like(0.0 if self.corners else -0.5)
        span = self.size(size) - (1 if self.corners else 0)
        distance = f.absolute(position - low)
        extra = f.fmod(distance, span)
        forth = f.remainder(f.floor(distance / span), 2).eq(0)
        found = f.where(forth, extra, span - extra) + low
        slope = f.where((position < low) ^ forth, position.like(1), -1)
        alone = span.eq(0)
        return f.where(alone, 0, found), f.where(alone, 0, slope)

    def weight(self, fraction: Num, tap: Num) -> tuple[Num, Num]:
        """Weight of neighbour ``tap`` and its derivative by the position; ``fraction`` is the distance from the
        floor."""
        match self.mode:
            case "nearest":
                return fraction.like(1), fraction.like(0)
            case "linear":
                later = tap.eq(1)
                return f.where(later, fraction, 1 - fraction), f.where(later, fraction.like(1), -1)
            case "cubic":
                distance = fraction + 1 - tap.to(self.dtype)
                return keys(distance, _CUBIC), keys_slope(distance, _CUBIC)


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An element that a position reads along one dimension."""

    index: Num
    exists: Num
    """True where the index is inside the tensor."""
    weight: Num
    slope: Num
    """Derivative of the weight by the coordinate."""


@dataclass(frozen=True, slots=True)
class Corner:
    """One neighbour per dimension of every point of a grid, in memory."""

    position: Tensor
    """Row-major position of the element among those of its channel, an ``i32``; -1 where there is none."""
    weight: Tensor | None
    """The product of the weights, None where that is 1."""


@dataclass(frozen=True, slots=True)
class _Sampler:
    """A grid over the spatial dimensions of a tensor, read at a batch and a point."""

    ctx: LoweringContext
    x: Tensor
    grid: Tensor
    how: _Sampling

    @property
    def spatial(self) -> tuple[Size, ...]:
        return self.x.shape[2:]

    def coordinate(self, batch: Size, point: Axes, d: int) -> Num:
        """Normalised coordinate along spatial dimension ``d``; the grid lists the last dimension first."""
        element = self.grid.load((batch, *point, len(self.spatial) - 1 - d))
        return Num(build.cast(element, self.how.dtype))

    def neighbour(self, batch: Size, point: Axes, d: int, tap: Size) -> Neighbour:
        """Neighbour ``tap`` of a point along spatial dimension ``d``."""
        how, size, number = self.how, self.spatial[d], f.index(tap)
        position = how.unnormalized(self.coordinate(batch, point, d), size)
        factor = how.scale(size)
        if how.mode != "cubic":
            position, slope = how.inside(position, size)
            factor = factor * slope
        first = f.rint(position) if how.mode == "nearest" else f.floor(position)
        weight, by_position = how.weight(position - first, number)
        here = first + number.to(how.dtype)
        if how.mode == "cubic":
            here, _ = how.inside(here - 1, size)
            # A reflected position is fractional only through rounding.
            here = f.floor(here)
        exists = (here >= 0) & (here < how.size(size))
        return Neighbour(here.to(i64), exists, weight, by_position * factor)

    def stored(self) -> list[Corner]:
        """Store the corners of every point once for all channels; empty where each result computes its own."""
        channels = self.x.shape[1]
        if self.x.device != CPU or (isinstance(channels, int) and channels < _FEW_CHANNELS):
            return []
        elements = product(self.spatial)
        if not isinstance(elements, int) or elements > extreme(i32, largest=True):
            return []
        shape, taps = self.grid.shape[:-1], range(self.how.reach)

        def near(axes: Axes, taps: Sequence[int]) -> list[Neighbour]:
            return [self.neighbour(axes[0], tuple(axes[1:]), d, tap) for d, tap in enumerate(taps)]

        def corner(taps: tuple[int, ...]) -> Corner:
            name = "".join(map(str, taps))

            def position(axes: Axes) -> Expr:
                found = near(axes, taps)
                total = found[0].index.to(i32)
                for neighbour, size in zip(found[1:], self.spatial[1:]):
                    total = total * f.index(size).to(i32) + neighbour.index.to(i32)
                return f.where(_exist(found), total, -1).expr

            def share(axes: Axes) -> Expr:
                return weight(near(axes, taps)).expr

            at = self.ctx.pointwise(position, self.ctx.temporary(i32, shape), f"position{name}")
            if self.how.mode == "nearest":
                return Corner(at, None)
            return Corner(
                at, self.ctx.pointwise(share, self.ctx.temporary(self.how.dtype, shape), f"weight{name}")
            )

        return [corner(each) for each in itertools.product(taps, repeat=len(self.spatial))]

    def weighted(self, corner: Corner, batch: Size, channel: Size, point: Axes) -> Num:
        """Element at a corner times its weight; zero where there is none."""
        at = (batch, *point)
        number = Num(corner.position.load(at))
        rest: Size = self.ctx.indirect(number.expr, product(self.spatial), check="assumed")
        index: list[Size] = []
        for size in reversed(self.spatial):
            index.insert(0, mod(rest, size))
            rest = floordiv(rest, size)
        element = build.cast(self.x.load((batch, channel, *index)), self.how.dtype)
        found = Num(build.masked((number >= 0).expr, element, build.const(0, self.how.dtype)))
        return found if corner.weight is None else found * Num(corner.weight.load(at))

    def value(self, batch: Size, channel: Size, near: Sequence[Neighbour]) -> Num:
        """Element at the neighbours of all dimensions; zero where one is outside the tensor."""
        at = [self.ctx.indirect(n.index.expr, s, check="clamped") for n, s in zip(near, self.spatial)]
        element = build.cast(self.x.load((batch, channel, *at)), self.how.dtype)
        return Num(build.masked(_exist(near).expr, element, build.const(0, self.how.dtype)))

    def corners(self, batch: Size, point: Axes) -> list[tuple[Neighbour, ...]]:
        """Every combination of one neighbour per dimension."""
        each = [
            [self.neighbour(batch, point, d, tap) for tap in range(self.how.reach)]
            for d in range(len(self.spatial))
        ]
        return list(itertools.product(*each))


def _exist(near: Sequence[Neighbour]) -> Num:
    """True where all neighbours are inside the tensor."""
    found = near[0].exists
    for n in near[1:]:
        found = found & n.exists
    return found


def weight(near: Sequence[Neighbour], along: int | None = None) -> Num:
    """Weight of a corner: the product over dimensions, with the derivative instead along dimension ``along``."""
    parts = [n.slope if d == along else n.weight for d, n in enumerate(near)]
    found = parts[0]
    for part in parts[1:]:
        found = found * part
    return found


def _total(parts: Sequence[Num]) -> Num:
    """Sum from left to right."""
    found = parts[0]
    for part in parts[1:]:
        found = found + part
    return found


def _sampler(
    ctx: LoweringContext, x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool
) -> _Sampler:
    how = _Sampling(_MODES[mode], _PADDINGS[padding], corners, compute_dtype(x.dtype))
    return _Sampler(ctx, x, grid, how)


@rule("aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default")
def grid_sampler(
    ctx: LoweringContext, x: Tensor, grid: Tensor, interpolation: int, padding: int, align_corners: bool
) -> Tensor:
    """Weighted sum of the neighbours of each position."""
    sampler = _sampler(ctx, x, grid, interpolation, padding, align_corners)
    stored = sampler.stored()

    def body(axes: Axes) -> Expr:
        batch, channel, *point = axes
        if stored:
            return _total([sampler.weighted(corner, batch, channel, tuple(point)) for corner in stored]).expr
        near = sampler.corners(batch, tuple(point))
        return _total([sampler.value(batch, channel, n) * weight(n) for n in near]).expr

    return ctx.pointwise(body)


@rule("aten.grid_sampler_2d_backward.default", "aten.grid_sampler_3d_backward.default")
def grid_sampler_backward(
    ctx: LoweringContext,
    grad: Tensor,
    x: Tensor,
    grid: Tensor,
    interpolation: int,
    padding: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of the input and of the grid, each None where not requested."""
    sampler = _sampler(ctx, x, grid, interpolation, padding, align_corners)
    return (
        _to_tensor(ctx, grad, sampler) if output_mask[0] else None,
        _to_grid(ctx, grad, sampler) if output_mask[1] else None,
    )


def _to_tensor(ctx: LoweringContext, grad: Tensor, sampler: _Sampler) -> Tensor:
    """Gradient of the input: each gradient is added to the neighbours, times their weights."""
    kind, wide = ctx.outputs[0], sampler.how.dtype
    assert kind is not None, "output_mask requests this gradient"
    spatial, reach = sampler.spatial, sampler.how.reach

    def near(axes: Axes) -> list[Neighbour]:
        batch, _, *point, number = axes
        taps = [mod(floordiv(number, reach**d), reach) for d in range(len(spatial))]
        return [sampler.neighbour(batch, tuple(point), d, tap) for d, tap in enumerate(taps)]

    def index(axes: Axes) -> list[Size]:
        at = (ctx.indirect(n.index.expr, s, check="clamped") for n, s in zip(near(axes), spatial))
        return [axes[0], axes[1], *at]

    def body(axes: Axes) -> Expr:
        found = near(axes)
        term = Num(build.cast(grad.load(axes[:-1]), wide)) * weight(found)
        return f.where(_exist(found), term, 0).expr

    total_type = kind if kind.dtype == wide else ctx.temporary(wide, kind.shape)
    base = zeros(ctx, ctx.temporary(wide, kind.shape))
    over = (*grad.shape, reach ** len(spatial))
    name = "0" if total_type is kind else "total"
    added = ctx.scatter(base, over, index, body, mode="add", type=total_type, name=name)
    return added if total_type is kind else ctx.pointwise(added.load, kind, "0")


def _to_grid(ctx: LoweringContext, grad: Tensor, sampler: _Sampler) -> Tensor:
    """Gradient of the coordinates, summed over channels."""
    kind, wide = ctx.outputs[1], sampler.how.dtype
    assert kind is not None, "output_mask requests this gradient"
    rank = len(sampler.spatial)

    def slopes(d: int) -> Callable[[Axes, Axes], Expr]:
        def body(outer: Axes, inner: Axes) -> Expr:
            batch, *point = outer
            moved = [
                sampler.value(batch, inner[0], n) * weight(n, d) for n in sampler.corners(batch, tuple(point))
            ]
            return (Num(build.cast(grad.load((batch, inner[0], *point)), wide)) * _total(moved)).expr

        return body

    summed = [
        ctx.reduction(
            "sum", slopes(d), (grad.shape[1],), (ctx.temporary(wide, kind.shape[:-1]),), (f"along{d}",)
        )[0]
        for d in range(rank)
    ]

    def body(axes: Axes) -> Expr:
        found = Num(summed[0].load(axes[:-1]))
        for d in range(1, rank):
            found = f.where(f.index(axes[-1]).eq(rank - 1 - d), Num(summed[d].load(axes[:-1])), found)
        return found.expr

    return ctx.pointwise(body, kind, "1")
