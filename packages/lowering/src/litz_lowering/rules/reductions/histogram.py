"""Histogram of values."""

from __future__ import annotations

import math
from typing import Any

from litz_ir.dtypes import f32, f64, i64
from litz_ir.loops import ReductionName
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, bounds
from litz_lowering.contexts.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num, where
from litz_lowering.rules.indexing.scatter import zeros


@rule("aten.histc.default")
def histc(ctx: LoweringContext, x: Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> Tensor | Declined:
    """Count values in each of ``bins`` equal intervals of a range, by default that of the values.

    The last interval includes its end. Values outside the range, and NaN, are ignored.
    """
    if x.dtype not in (f32, f64):
        return Declined("histograms are generated for f32 and f64")
    if not (isinstance(min, int | float) and isinstance(max, int | float)):
        return Declined("the range of the histogram is symbolic")
    low, high = float(min), float(max)
    if low != high and math.inf in (-low, high):
        return Declined("eager raises an error for a range that is not finite")
    if x.numel == 0:
        return zeros(ctx, ctx.output)
    fewest = bounds(x.numel, ctx.builder.symbols.ranges()).low
    if low == high and not fewest:
        return Declined("the range of the values of a possibly empty tensor is undefined")
    given = [Num(build.const(end, x.dtype)) for end in (low, high)]
    return _counted(ctx, x, bins, *(_range(ctx, x) if low == high else given))


def _range(ctx: LoweringContext, x: Tensor) -> tuple[Num, Num]:
    """Smallest and largest value, extended by one on each side where they are equal; raises unless finite."""
    low, high = _whole(ctx, "min", x), _whole(ctx, "max", x)
    infinite = f.isinf(low) | f.isinf(high) | f.isnan(low) | f.isnan(high)
    ctx.check((~infinite).expr, "torch.histc: range of the values is not finite")
    equal = low.eq(high)
    return where(equal, low - 1, low), where(equal, high + 1, high)


def _whole(ctx: LoweringContext, combiner: ReductionName, x: Tensor) -> Num:
    (found,) = ctx.reduction(
        combiner, lambda _, at: x.load(at), x.shape, (ctx.temporary(x.dtype, ()),), (combiner,)
    )
    return Num(found.load(()))


def _counted(ctx: LoweringContext, x: Tensor, bins: int, low: Num, high: Num) -> Tensor:
    def inside(axes: Axes) -> Num:
        value = Num(x.load(axes))
        return (value >= low) & (value <= high)

    def bin_of(axes: Axes) -> tuple[Size, ...]:
        number = ((Num(x.load(axes)) - low) * bins / (high - low)).to(i64)
        # The width of a range may overflow.
        clamped = f.maximum(f.minimum(where(inside(axes), number, 0), bins - 1), 0)
        return (ctx.indirect(clamped.expr, bins, check="assumed"),)

    def one(axes: Axes) -> Expr:
        return inside(axes).to(x.dtype).expr

    return ctx.scatter(zeros(ctx, ctx.temporary(x.dtype, (bins,))), x.shape, bin_of, one, mode="add")
