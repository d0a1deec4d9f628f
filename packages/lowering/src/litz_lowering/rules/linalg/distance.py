"""Distances between the rows of two matrices or batches of matrices, and their gradient."""

from __future__ import annotations

import math
from typing import Any

from litz_ir.dtypes import f32, f64
from litz_ir.loops import ReductionName
from litz_ir.scalar import Expr
from litz_ir.symbols import bounds
from litz_lowering.contexts.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num, where
from litz_lowering.rules.indexing.scatter import zeros

BY_MATMUL, DIRECT = 1, 2
"""Eager's modes that always and never compute Euclidean distances by a matmul."""

_MAX_DIRECT_ROWS = 25
"""Largest number of rows for which eager avoids the matmul where it may choose."""


def _by_matmul(ctx: LoweringContext, x1: Tensor, x2: Tensor, mode: int) -> bool:
    """True where eager may use a matmul, which is faster and rounds differently."""
    if mode in (BY_MATMUL, DIRECT):
        return mode == BY_MATMUL
    highest = [bounds(x.shape[-2], ctx.builder.symbols.ranges()).high for x in (x1, x2)]
    return any(high is None or high > _MAX_DIRECT_ROWS for high in highest)


def _difference(x1: Tensor, x2: Tensor, batch: Axes, row: Axes, column: Axes) -> Num:
    """Difference of an element of row ``row[0]`` of ``x1`` and the same element of row ``row[1]`` of ``x2``."""
    return Num(x1.at((*batch, row[0], *column))) - Num(x2.at((*batch, row[1], *column)))


@rule("aten._cdist_forward.default")
def cdist(
    ctx: LoweringContext, x1: Tensor, x2: Tensor, p: Any, compute_mode: int | None
) -> Tensor | Declined:
    """``p``-norm of the difference of each row of ``x1`` and each row of ``x2``."""
    if x1.dtype not in (f32, f64) or not isinstance(p, int | float):
        return Declined("distances are generated for f32 and f64, and for an order that is a number")
    if p == 2 and _by_matmul(ctx, x1, x2, compute_mode or 0):
        return Declined("Euclidean distances of many rows are computed by a matmul")
    if x1.shape[-1] == 0:
        return zeros(ctx, ctx.output)

    def element(outer: Axes, inner: Axes) -> Expr:
        size = f.absolute(_difference(x1, x2, outer[:-2], outer[-2:], inner))
        if p == 0:
            return f.minimum(f.ceil(size), 1).expr
        if p == math.inf:
            return where(f.isnan(size), 0, size).expr  # as eager's largest element does
        if p == 2:
            return (size * size).expr
        return (size if p == 1 else f.power(size, float(p))).expr

    combiner: ReductionName = "max" if p == math.inf else "sum"
    complete = p in (0, 1, math.inf)
    kind = ctx.output if complete else ctx.temporary(x1.dtype, ctx.output.shape)
    (total,) = ctx.reduction(combiner, element, x1.shape[-1:], (kind,), ("" if complete else "total",))
    if complete:
        return total

    def root(axes: Axes) -> Expr:
        value = Num(total.load(axes))
        return (f.sqrt(value) if p == 2 else f.power(value, 1.0 / p)).expr

    return ctx.pointwise(root)


def _slope(difference: Num, distance: Num, p: float) -> Num:
    """Derivative of a nonzero distance by an element of the difference, in eager's order of operations."""
    size = f.absolute(difference)
    if p == 1:
        return f.sign(difference)
    if p == 2:
        return difference / distance
    if p == math.inf:
        return f.sign(difference) * (1.0 - f.minimum(f.ceil(f.absolute(size - distance)), 1))
    if p > 2:
        return difference * f.power(size, p - 2.0) / f.power(distance, p - 1.0)
    slope = f.sign(difference) * f.power(size, p - 1.0) / f.power(distance, p - 1.0)
    return where(difference.eq(0), 0, slope) if p < 1 else slope


@rule("aten._cdist_backward.default")
def cdist_backward(
    ctx: LoweringContext, grad: Tensor, x1: Tensor, x2: Tensor, p: Any, cdist: Tensor
) -> Tensor | Declined:
    """Gradient of ``x1``: derivatives of the distances times their gradients, summed over the rows of ``x2``."""
    if not isinstance(p, int | float):
        return Declined("the order of the distance is a symbol")
    if p == 0:
        return zeros(ctx, ctx.output)

    def element(outer: Axes, inner: Axes) -> Expr:
        *batch, row, column = outer
        distance = Num(cdist.at((*batch, row, *inner)))
        difference = _difference(x1, x2, tuple(batch), (row, *inner), (column,))
        change = Num(grad.at((*batch, row, *inner))) * _slope(difference, distance, float(p))
        is_zero = distance.eq(0) if p not in (1, math.inf) else None
        return (change if is_zero is None else where(is_zero, 0, change)).expr

    return ctx.reduction("sum", element, x2.shape[-2:-1], (ctx.output,))[0]
