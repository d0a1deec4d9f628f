"""Counts of values by the bin that they fall into."""

from __future__ import annotations

import math
from typing import Any

from litz_ir.dtypes import f32, f64, i64
from litz_ir.loops import ReductionName
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, bounds
from litz_lowering.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.registry import rule
from litz_lowering.rules import formula as f
from litz_lowering.rules.formula import Num, where
from litz_lowering.rules.scatter import zeros


@rule("aten.histc.default")
def histc(ctx: LoweringContext, x: Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> Tensor | Declined:
    """How many values lie in each of ``bins`` equal parts of a range, by default that of the values; the last part
    holds its end too. Values outside the range, and NaN, are passed over."""
    if x.dtype not in (f32, f64):
        return Declined("eager counts narrow floats in their own dtype, and has no bins of other numbers")
    if not (isinstance(min, int | float) and isinstance(max, int | float)):
        return Declined("a histogram over a range unknown while compiling")
    low, high = float(min), float(max)
    if low != high and math.inf in (-low, high):
        return Declined("eager refuses a range that is not finite")
    if x.numel == 0:
        return zeros(ctx, ctx.output)
    fewest = bounds(x.numel, ctx.builder.symbols.ranges()).low
    if low == high and not fewest:
        return Declined("the range of values that may be none at all")
    given = [Num(build.const(end, x.dtype)) for end in (low, high)]
    return _counted(ctx, x, bins, *(_range(ctx, x) if low == high else given))


def _range(ctx: LoweringContext, x: Tensor) -> tuple[Num, Num]:
    """The smallest and the largest value, or one below and above where they are equal; errors unless finite."""
    low, high = _whole(ctx, "min", x), _whole(ctx, "max", x)
    infinite = f.isinf(low) | f.isinf(high) | f.isnan(low) | f.isnan(high)
    ctx.check((~infinite).expr, "torch.histc: range of the values is not finite")
    equal = low.eq(high)
    return where(equal, low - 1, low), where(equal, high + 1, high)


def _whole(ctx: LoweringContext, how: ReductionName, x: Tensor) -> Num:
    (found,) = ctx.reduction(how, lambda _, at: x.load(at), x.shape, (ctx.temporary(x.dtype, ()),), (how,))
    return Num(found.load(()))


def _counted(ctx: LoweringContext, x: Tensor, bins: int, low: Num, high: Num) -> Tensor:
    def inside(axes: Axes) -> Num:
        value = Num(x.load(axes))
        return (value >= low) & (value <= high)

    def place(axes: Axes) -> tuple[Size, ...]:
        part = ((Num(x.load(axes)) - low) * bins / (high - low)).to(i64)
        # The width of a range may overflow.
        held = f.maximum(f.minimum(where(inside(axes), part, 0), bins - 1), 0)
        return (ctx.indirect(held.expr, bins, check="assumed"),)

    def one(axes: Axes) -> Expr:
        return inside(axes).to(x.dtype).expr

    return ctx.scatter(zeros(ctx, ctx.temporary(x.dtype, (bins,))), x.shape, place, one, mode="add")
