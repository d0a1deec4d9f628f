"""Losses whose input eager validates."""

from __future__ import annotations

from litz_ir.dtypes import compute_dtype
from litz_ir.scalar import Expr, build
from litz_lowering.contexts.context import Axes, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num
from litz_lowering.rules.reductions.reduce import count, finished

_LOWEST = -100.0
_NONE, _MEAN = 0, 1


@rule("aten.binary_cross_entropy.default")
def binary_cross_entropy(
    ctx: LoweringContext, x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = _MEAN
) -> Tensor:
    """``-(t*log(x) + (1 - t)*log(1 - x))`` with logarithms clamped to -100.

    An ``x`` or ``t`` outside [0, 1] is an error.
    """
    out = ctx.output.dtype
    wide = compute_dtype(out)

    def value(tensor: Tensor, axes: Axes) -> Num:
        return Num(build.cast(tensor.at(axes), wide))

    def probability(tensor: Tensor, axes: Axes, fault: str) -> Num:
        given = value(tensor, axes)
        return Num(build.checked(((given >= 0) & (given <= 1)).expr, given.expr, fault))

    def loss(axes: Axes) -> Expr:
        p, t = probability(x, axes, "unit_interval"), probability(target, axes, "target_interval")
        each = (t - 1) * f.maximum(f.unary("log1p")(-p), _LOWEST) - t * f.maximum(f.unary("log")(p), _LOWEST)
        if weight is not None:
            each = each * value(weight, axes)
        return build.cast(build.cast(each.expr, out), wide)

    if reduction == _NONE:
        return ctx.pointwise(loss)
    total = ctx.reduce("sum", x, range(x.rank), wide, body=loss, name="sum")
    elements = count(ctx, x.shape, wide)
    return finished(ctx, total, lambda v: v / elements if reduction == _MEAN else v)
