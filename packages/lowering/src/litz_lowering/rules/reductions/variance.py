"""Variances and standard deviations, in two passes."""

from __future__ import annotations

from collections.abc import Callable

from litz_ir.dtypes import DType, compute_dtype
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size
from litz_lowering.contexts.context import Axes, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num
from litz_lowering.rules.indexing.view import dimensions
from litz_lowering.rules.reductions.reduce import Dims, at_least_zero, count, finished, reduced_sizes

Correction = Size | Expr | float | None
"""Number subtracted from the count of elements; 1 for None."""


def _subtracted(ctx: LoweringContext, correction: Correction, dtype: DType) -> Num | float:
    if correction is None:
        return 1.0
    if isinstance(correction, int | float):
        return float(correction)
    return Num(ctx.number(correction, dtype))


def moments(
    ctx: LoweringContext, x: Tensor, dims: Dims, keepdim: bool, correction: Correction, dtype: DType
) -> tuple[Tensor, Tensor]:
    """Mean, with reduced dimensions of size 1, and variance in ``dtype``, in two passes over ``x``."""
    over = dimensions(dims, x.rank)
    number = count(ctx, reduced_sizes(x, over), dtype)
    total = ctx.reduce("sum", x, over, dtype, keepdim=True, name="sum")
    mean_ = ctx.pointwise(lambda axes: (Num(total.load(axes)) / number).expr, total.type, "mean")

    def square(index: Axes) -> Expr:
        difference = Num(build.cast(x.load(index), dtype)) - Num(mean_.at(index))
        return (difference * difference).expr

    squares = ctx.reduce("sum", x, over, dtype, body=square, keepdim=keepdim, name="squares")
    freedom = at_least_zero(number - _subtracted(ctx, correction, dtype))
    variance = ctx.pointwise(lambda axes: (Num(squares.load(axes)) / freedom).expr, squares.type, "variance")
    return mean_, variance


@rule("aten.var.correction")
def var(
    ctx: LoweringContext,
    x: Tensor,
    dim: Dims = None,
    *,
    correction: Correction = None,
    keepdim: bool = False,
) -> Tensor:
    """Variance; ``correction`` is subtracted from the count."""
    variance = moments(ctx, x, dim, keepdim, correction, compute_dtype(ctx.output.dtype))[1]
    return ctx.pointwise(variance.load)


@rule("aten.std.correction")
def std(
    ctx: LoweringContext,
    x: Tensor,
    dim: Dims = None,
    *,
    correction: Correction = None,
    keepdim: bool = False,
) -> Tensor:
    """Standard deviation."""
    variance = moments(ctx, x, dim, keepdim, correction, compute_dtype(ctx.output.dtype))[1]
    return finished(ctx, variance, f.sqrt)


def _with_mean(
    ctx: LoweringContext,
    x: Tensor,
    dim: Dims,
    keepdim: bool,
    correction: Correction,
    finish: Callable[[Num], Num],
) -> tuple[Tensor, Tensor]:
    first, second = ctx.outputs
    assert first is not None and second is not None, "two tensors are returned"
    mean_, variance = moments(ctx, x, dim, keepdim, correction, compute_dtype(first.dtype))
    reduced_dims = () if keepdim else dimensions(dim, x.rank)

    def mean_index(axes: Axes) -> list[Size]:
        outer_terms = iter(axes)
        return [0 if d in reduced_dims else next(outer_terms) for d in range(x.rank)]

    spread = ctx.pointwise(lambda axes: finish(Num(variance.load(axes))).expr, first, "0")
    return spread, ctx.pointwise(lambda axes: mean_.load(mean_index(axes)), second, "1")


@rule("aten.var_mean.correction")
def var_mean(
    ctx: LoweringContext,
    x: Tensor,
    dim: Dims = None,
    *,
    correction: Correction = None,
    keepdim: bool = False,
) -> tuple[Tensor, Tensor]:
    """Variance and mean."""
    return _with_mean(ctx, x, dim, keepdim, correction, lambda v: v)


@rule("aten.std_mean.correction")
def std_mean(
    ctx: LoweringContext,
    x: Tensor,
    dim: Dims = None,
    *,
    correction: Correction = None,
    keepdim: bool = False,
) -> tuple[Tensor, Tensor]:
    """Standard deviation and mean."""
    return _with_mean(ctx, x, dim, keepdim, correction, f.sqrt)
