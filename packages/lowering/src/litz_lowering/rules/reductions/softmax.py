"""Softmax and log-softmax with gradients, computed in the wider dtype and rounded once, as in eager."""

from __future__ import annotations

from typing import Any

from litz_ir.dtypes import compute_dtype
from litz_ir.scalar import Expr, build
from litz_lowering.contexts.context import Axes, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num
from litz_lowering.rules.indexing.view import dimensions


def _wide_reader(ctx: LoweringContext, x: Tensor) -> Any:
    dtype = compute_dtype(x.dtype)
    return lambda index: Num(build.cast(x.load(index), dtype))


@rule("aten._softmax.default", "aten._safe_softmax.default")
def softmax(ctx: LoweringContext, x: Tensor, dim: int, *_: Any, **__: Any) -> Tensor:
    """``exp(x - max) / sum(exp(x - max))``; ``_safe_softmax`` gives 0 where every element is -inf."""
    dtype, over = compute_dtype(x.dtype), dimensions((dim,), x.rank)
    load = _wide_reader(ctx, x)
    top = ctx.reduce("max", x, over, dtype, keepdim=True, name="max")
    shifted = ctx.pointwise(
        lambda axes: f.exp(load(axes) - Num(top.at(axes))).expr, ctx.temporary(dtype, x.shape), "exp"
    )
    total = ctx.reduce("sum", shifted, over, dtype, keepdim=True, name="sum")

    def result(axes: Axes) -> Expr:
        value = Num(shifted.load(axes)) / Num(total.at(axes))
        if "safe" in str(ctx.node.target):
            value = f.where(Num(top.at(axes)).eq(float("-inf")), 0.0, value)
        return value.expr

    return ctx.pointwise(result)


@rule("aten._log_softmax.default")
def log_softmax(ctx: LoweringContext, x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """``x - max - log(sum(exp(x - max)))``."""
    dtype, over = compute_dtype(x.dtype), dimensions((dim,), x.rank)
    load = _wide_reader(ctx, x)
    top = ctx.reduce("max", x, over, dtype, keepdim=True, name="max")
    total = ctx.reduce(
        "sum", x, over, dtype, keepdim=True, name="sum",
        body=lambda axes: f.exp(load(axes) - Num(top.at(axes))).expr,
    )  # fmt: skip
    return ctx.pointwise(lambda axes: (load(axes) - Num(top.at(axes)) - f.log(Num(total.at(axes)))).expr)


@rule("aten._softmax_backward_data.default")
def softmax_backward(
    ctx: LoweringContext, grad: Tensor, output: Tensor, dim: int, input_dtype: Any
) -> Tensor:
    """``(grad - sum(grad * output)) * output``."""
    dtype, over = compute_dtype(grad.dtype), dimensions((dim,), grad.rank)
    g, y = _wide_reader(ctx, grad), _wide_reader(ctx, output)
    total = ctx.reduce(
        "sum", grad, over, dtype, keepdim=True, name="sum", body=lambda axes: (g(axes) * y(axes)).expr
    )  # fmt: skip
    return ctx.pointwise(lambda axes: ((g(axes) - Num(total.at(axes))) * y(axes)).expr)


@rule("aten._log_softmax_backward_data.default")
def log_softmax_backward(
    ctx: LoweringContext, grad: Tensor, output: Tensor, dim: int, input_dtype: Any
) -> Tensor:
    """``grad - exp(output) * sum(grad)``."""
    dtype, over = compute_dtype(grad.dtype), dimensions((dim,), grad.rank)
    g, y = _wide_reader(ctx, grad), _wide_reader(ctx, output)
    total = ctx.reduce("sum", grad, over, dtype, keepdim=True, name="sum")
    return ctx.pointwise(lambda axes: (g(axes) - f.exp(y(axes)) * Num(total.at(axes))).expr)
