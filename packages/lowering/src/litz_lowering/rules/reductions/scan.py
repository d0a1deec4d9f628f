"""Scans: cumulative operations along a dimension."""

from __future__ import annotations

import math
from typing import Any

from litz_ir.dtypes import accumulate_dtype, compute_dtype, f32, f64, i64
from litz_ir.loops import ReductionName, UserCombiner
from litz_ir.scalar import Expr, Param, build
from litz_lowering.contexts.context import Axes, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num, extreme
from litz_lowering.rules.indexing.view import dimension


def _running(ctx: LoweringContext, combiner: ReductionName, x: Tensor, dim: int) -> Tensor:
    kind = ctx.output
    if x.rank == 0:
        return ctx.pointwise(x.load)
    wide = accumulate_dtype(kind.dtype)
    accumulator = kind if kind.dtype == wide else ctx.temporary(wide, kind.shape)
    total = ctx.scan(
        combiner,
        lambda axes: build.cast(build.cast(x.load(axes), kind.dtype), wide),
        dimension(dim, x.rank),
        (accumulator,),
        ("" if accumulator is kind else combiner,),
    )[0]
    return total if accumulator is kind else ctx.pointwise(total.load)


@rule("aten.cumsum.default")
def cumsum(ctx: LoweringContext, x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Cumulative sum."""
    return _running(ctx, "sum", x, dim)


@rule("aten.cumprod.default")
def cumprod(ctx: LoweringContext, x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Cumulative product."""
    return _running(ctx, "prod", x, dim)


# --- cumulative extremes and their positions ----------------------------------------


def _running_extreme(ctx: LoweringContext, x: Tensor, dim: int, largest: bool) -> tuple[Tensor, ...]:
    """Values and positions; of equal elements the last one wins, and the last NaN wins over all."""
    values, positions = ctx.outputs
    assert values is not None and positions is not None, "cummax and cummin return two tensors"
    if x.rank == 0:
        zero = ctx.pointwise(lambda axes: build.const(0, i64), positions, "1")
        return ctx.pointwise(x.load, values, "0"), zero
    wide = i64 if x.dtype.is_bool else compute_dtype(x.dtype)
    d = dimension(dim, x.rank)

    def body(axes: Axes) -> tuple[Expr, ...]:
        return build.cast(x.load(axes), wide), build.index(axes[d])

    best, at, new, here = (Num(Param(k, t)) for k, t in enumerate((wide, i64, wide, i64)))
    wins = new >= best if largest else new <= best
    if wide.is_float:
        wins = (wins & ~f.isnan(best)) | f.isnan(new)
    combiner = UserCombiner(
        body=(f.where(wins, new, best).expr, f.where(wins, here, at).expr),
        identity=(build.const(extreme(wide, largest=not largest), wide), build.const(0, i64)),
        finish=(best.to(x.dtype).expr, at.expr),
    )
    return ctx.scan(combiner, body, d, (values, positions), ("0", "1"))


@rule("aten.cummax.default")
def cummax(ctx: LoweringContext, x: Tensor, dim: int) -> tuple[Tensor, ...]:
    """Cumulative maxima and their positions."""
    return _running_extreme(ctx, x, dim, True)


@rule("aten.cummin.default")
def cummin(ctx: LoweringContext, x: Tensor, dim: int) -> tuple[Tensor, ...]:
    """Cumulative minima and their positions."""
    return _running_extreme(ctx, x, dim, False)


@rule("aten.logcumsumexp.default")
def logcumsumexp(ctx: LoweringContext, x: Tensor, dim: int) -> Tensor:
    """Cumulative logsumexp; eager accumulates in double, and 16-bit floats in ``f32``."""
    if x.rank == 0:
        return ctx.pointwise(x.load)
    wide = f32 if x.dtype.is_low_precision else f64
    total, new = Num(Param(0, wide)), Num(Param(1, wide))
    low, high = f.minimum(total, new), f.maximum(total, new)
    # The difference of equal infinities is NaN.
    has_difference = low.ne(high) | ~f.isinf(low)
    combiner = UserCombiner(
        body=(f.where(has_difference, f.log1p(f.exp(low - high)) + high, new).expr,),
        identity=(build.const(-math.inf, wide),),
        finish=(total.to(x.dtype).expr,),
    )
    d = dimension(dim, x.rank)
    return ctx.scan(combiner, lambda axes: build.cast(x.load(axes), wide), d, (ctx.output,))[0]
