"""Largest element of a window and its position by eager's rule: the last NaN, else the first of the largest.

Eager visits a window in order and replaces its choice by a larger element or a NaN. Short windows do the same in
loops, whose lanes are different windows. Long windows, whose elements are lanes, are read twice: the position is
the smallest of those of the largest element, with positions of NaNs counted backwards from -1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from litz_ir.dtypes import DType, compute_dtype, i32, i64
from litz_ir.loops import TensorType, UserCombiner
from litz_ir.scalar import Expr, Param, build
from litz_ir.symbols import Size, product
from litz_lowering.contexts.context import Axes, LoweringContext, Tensor
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num, extreme
from litz_lowering.expressions.index_maps import unflatten
from litz_lowering.rules.indexing.scatter import zeros

_LONG = 32
"""Number of elements above which a window is long."""


@dataclass(frozen=True, slots=True)
class WindowSearch:
    """Windows whose steps run over the sizes ``over``."""

    over: Sequence[Size]
    value: Callable[[Axes, Axes], Expr]
    """Element at ``(window, steps)``."""
    position: Callable[[Axes, Axes], Size]
    """Position of that element, below ``count``."""
    inside: Callable[[Axes, Axes], Expr]
    """Condition that the step stays in the window."""
    first: Callable[[Axes], Size]
    """First position of a window."""
    count: Size
    """Upper bound of positions, exclusive."""

    @property
    def position_dtype(self) -> DType:
        """Narrowest dtype that holds every position."""
        return i32 if isinstance(self.count, int) and self.count < 2**31 else i64

    def element(self, window: Axes, steps: Axes) -> Expr:
        """Element in its dtype of computation; the lowest value where the step leaves the window."""
        value = self.value(window, steps)
        wide = compute_dtype(value.dtype)
        lowest = build.const(extreme(wide, largest=False), wide)
        return build.masked(self.inside(window, steps), build.cast(value, wide), lowest)

    def element_position(self, window: Axes, steps: Axes, other: int) -> Expr:
        """Position of the element; ``other`` where the step leaves the window."""
        here = build.cast(build.index(self.position(window, steps)), self.position_dtype)
        return build.where(self.inside(window, steps), here, build.const(other, self.position_dtype))

    @property
    def is_long(self) -> bool:
        points = product(self.over)
        return isinstance(points, int) and points > _LONG


def largest(ctx: LoweringContext, search: WindowSearch) -> tuple[Tensor, Tensor]:
    """Largest element of every window and its position: the node's results."""
    kind, positions = ctx.outputs
    assert kind is not None and positions is not None, "max pooling returns two tensors"
    wide = compute_dtype(kind.dtype)
    accumulator = kind if kind.dtype == wide else ctx.temporary(wide, kind.shape)
    name = "0" if accumulator is kind else "wide"
    best, where = (_in_two_passes if search.is_long else _by_combiner)(ctx, search, accumulator, name)
    return best if accumulator is kind else ctx.pointwise(best.load, kind, "0"), ctx.pointwise(
        where, positions, "1"
    )


def _by_combiner(
    ctx: LoweringContext, search: WindowSearch, accumulator: TensorType, name: str
) -> tuple[Tensor, Callable[[Axes], Expr]]:
    def both(window: Axes, steps: Axes) -> tuple[Expr, ...]:
        return search.element(window, steps), search.element_position(window, steps, -1)

    kinds = accumulator, ctx.temporary(search.position_dtype, accumulator.shape)
    combiner = _later_larger(accumulator.dtype, search.position_dtype)
    best, found = ctx.reduction(combiner, both, search.over, kinds, (name, "found"))

    def where(window: Axes) -> Expr:
        at = Num(found.load(window)).to(i64)
        return f.where(at < 0, f.index(search.first(window)), at).expr

    return best, where


def _later_larger(value: DType, position: DType) -> UserCombiner:
    """Combiner that takes a later element if it is larger, or NaN; position -1 where all are the lowest value."""
    best, at, new, here = (Num(Param(k, t)) for k, t in enumerate((value, position, value, position)))
    wins = (new > best) | f.isnan(new) if value.is_float else new > best
    return UserCombiner(
        body=(f.where(wins, new, best).expr, f.where(wins, here, at).expr),
        identity=(build.const(extreme(value, largest=False), value), build.const(-1, position)),
        finish=(best.expr, at.expr),
    )


def _in_two_passes(
    ctx: LoweringContext, search: WindowSearch, accumulator: TensorType, name: str
) -> tuple[Tensor, Callable[[Axes], Expr]]:
    (best,) = ctx.reduction("max", search.element, search.over, (accumulator,), (name,))
    narrow = search.position_dtype
    none = int(extreme(narrow, largest=True))

    def body(window: Axes, steps: Axes) -> Expr:
        here, value = Num(search.element_position(window, steps, none)), Num(search.element(window, steps))
        position = f.where(value.eq(Num(best.load(window))), here, none)
        return (f.where(f.isnan(value), -1 - here, position) if accumulator.dtype.is_float else position).expr

    (found,) = ctx.reduction(
        "min", body, search.over, (ctx.temporary(narrow, accumulator.shape),), ("found",)
    )

    def where(window: Axes) -> Expr:
        at = Num(found.load(window)).to(i64)
        return f.where(at < 0, -1 - at, at).expr

    return best, where


def added_at_maxima(ctx: LoweringContext, grad: Tensor, sizes: Sequence[Size], indices: Tensor) -> Tensor:
    """Gradient of a pool's input: elements of ``grad`` are added, in order, at their indices in dimensions ``sizes``.

    Sums have the dtype of computations, and are rounded once. Indices outside are clamped.
    """
    kind, wide, lead = ctx.output, compute_dtype(grad.dtype), grad.rank - len(sizes)

    def index(window: Axes) -> list[Size]:
        position = ctx.indirect(indices.load(window), product(sizes), check="clamped")
        return [*window[:lead], *unflatten(position, sizes)]

    total_type = kind if kind.dtype == wide else ctx.temporary(wide, kind.shape)
    base = zeros(ctx, ctx.temporary(wide, kind.shape))
    total = ctx.scatter(
        base, grad.shape, index, lambda window: build.cast(grad.load(window), wide), mode="add",
        type=total_type, name="" if total_type is kind else "total",
    )  # fmt: skip
    return total if total_type is kind else ctx.pointwise(total.load)
