"""The largest element of a window and its place, by eager's rule: the last NaN, else the first of the largest.

Eager goes through a window in order and takes what is larger than what it has, or NaN. Over short windows so do loops,
whose lanes are different windows. Long ones, whose elements are lanes, are read twice: the place is the smallest of
those that hold the largest element, NaNs being counted backwards from -1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from litz_ir.dtypes import DType, compute_dtype, i32, i64
from litz_ir.loops import TensorType, UserCombiner
from litz_ir.scalar import Expr, Param, build
from litz_ir.symbols import Size, product
from litz_lowering.context import Axes, LoweringContext, Tensor
from litz_lowering.rules import formula as f
from litz_lowering.rules.formula import Num, extreme

LONG = 32
"""Windows of more elements are long."""


@dataclass(frozen=True, slots=True)
class WindowSearch:
    """Windows whose steps run over the sizes ``over``.

    ``value(window, steps)`` is an element, ``position`` where it is, below ``count``, and ``inside`` whether the step
    stays in the window; ``first(window)`` is the place where a window begins.
    """

    over: Sequence[Size]
    value: Callable[[Axes, Axes], Expr]
    position: Callable[[Axes, Axes], Size]
    inside: Callable[[Axes, Axes], Expr]
    first: Callable[[Axes], Size]
    count: Size

    @property
    def position_dtype(self) -> DType:
        """The narrowest dtype that places are known to fit in."""
        return i32 if isinstance(self.count, int) and self.count < 2**31 else i64

    def element(self, window: Axes, steps: Axes) -> Expr:
        """The element in the dtype that it is computed in, the lowest value where the step leaves the window."""
        value = self.value(window, steps)
        wide = compute_dtype(value.dtype)
        lowest = build.const(extreme(wide, largest=False), wide)
        return build.masked(self.inside(window, steps), build.cast(value, wide), lowest)

    def element_position(self, window: Axes, steps: Axes, other: int) -> Expr:
        """The place of the element, ``other`` where the step leaves the window."""
        here = build.cast(build.index(self.position(window, steps)), self.position_dtype)
        return build.where(self.inside(window, steps), here, build.const(other, self.position_dtype))

    @property
    def is_long(self) -> bool:
        points = product(self.over)
        return isinstance(points, int) and points > LONG


def largest(ctx: LoweringContext, search: WindowSearch) -> tuple[Tensor, Tensor]:
    """(largest element, its place) of every window: the node's results."""
    kind, positions = ctx.outputs
    assert kind is not None and positions is not None, "both results are tensors"
    wide = compute_dtype(kind.dtype)
    held = kind if kind.dtype == wide else ctx.temporary(wide, kind.shape)
    name = "0" if held is kind else "wide"
    best, where = (_by_place if search.is_long else _in_order)(ctx, search, held, name)
    return best if held is kind else ctx.pointwise(best.load, kind, "0"), ctx.pointwise(where, positions, "1")


def _in_order(
    ctx: LoweringContext, search: WindowSearch, held: TensorType, name: str
) -> tuple[Tensor, Callable[[Axes], Expr]]:
    def both(window: Axes, steps: Axes) -> tuple[Expr, ...]:
        return search.element(window, steps), search.element_position(window, steps, -1)

    kinds = held, ctx.temporary(search.position_dtype, held.shape)
    how = _taken(held.dtype, search.position_dtype)
    best, found = ctx.reduction(how, both, search.over, kinds, (name, "found"))

    def where(window: Axes) -> Expr:
        at = Num(found.load(window)).to(i64)
        return f.where(at < 0, f.index(search.first(window)), at).expr

    return best, where


def _taken(value: DType, place: DType) -> UserCombiner:
    """A later element is taken if it is larger, or NaN; place -1 where all are the lowest value."""
    best, at, new, here = (Num(Param(k, t)) for k, t in enumerate((value, place, value, place)))
    wins = (new > best) | f.isnan(new) if value.is_float else new > best
    return UserCombiner(
        body=(f.where(wins, new, best).expr, f.where(wins, here, at).expr),
        identity=(build.const(extreme(value, largest=False), value), build.const(-1, place)),
        finish=(best.expr, at.expr),
    )


def _by_place(
    ctx: LoweringContext, search: WindowSearch, held: TensorType, name: str
) -> tuple[Tensor, Callable[[Axes], Expr]]:
    (best,) = ctx.reduction("max", search.element, search.over, (held,), (name,))
    narrow = search.position_dtype
    none = int(extreme(narrow, largest=True))

    def body(window: Axes, steps: Axes) -> Expr:
        here, value = Num(search.element_position(window, steps, none)), Num(search.element(window, steps))
        place = f.where(value.eq(Num(best.load(window))), here, none)
        return (f.where(f.isnan(value), -1 - here, place) if held.dtype.is_float else place).expr

    (found,) = ctx.reduction("min", body, search.over, (ctx.temporary(narrow, held.shape),), ("found",))

    def where(window: Axes) -> Expr:
        at = Num(found.load(window)).to(i64)
        return f.where(at < 0, -1 - at, at).expr

    return best, where
