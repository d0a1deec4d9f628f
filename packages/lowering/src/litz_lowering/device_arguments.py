"""Arguments of a rule on the device of its results."""

from __future__ import annotations

from typing import Any

from litz_ir.device import CPU
from litz_ir.dtypes import b1, f64, u64
from litz_ir.loops import Pointwise
from litz_ir.scalar import Const, Expr, Load, Scalar, build
from litz_lowering.aten.fallback import copied_to
from litz_lowering.contexts.context import LoweringContext
from litz_lowering.contexts.values import Complex, Tensor

_ELSEWHERE = "an argument is on another device"


def on_result_device(ctx: LoweringContext, argument: Any) -> Any:
    """Move a rule's arguments to the device of the results, as eager does for 0-d CPU tensors and indices.

    ``argument`` may be a tuple or dict of arguments.
    """
    if isinstance(argument, tuple):
        return tuple(on_result_device(ctx, item) for item in argument)
    if isinstance(argument, dict):
        return {key: on_result_device(ctx, item) for key, item in argument.items()}
    if not isinstance(argument, Tensor | Complex) or not ctx.outputs or ctx.outputs[0] is None:
        return argument
    device = ctx.outputs[0].device
    if argument.device == device:
        return argument
    if isinstance(argument, Complex):
        return Complex(copied_to(ctx, argument.pairs, device, _ELSEWHERE))
    if argument.device == CPU and not argument.rank and (number := _scalar_value(ctx, argument)) is not None:
        kind = ctx.temporary(argument.dtype, (), device)
        return ctx.pointwise(lambda axes: number, kind, f"{argument.name}_here")
    return copied_to(ctx, argument, device, _ELSEWHERE)


def _scalar_value(ctx: LoweringContext, number: Tensor) -> Expr | None:
    """Value of a 0-d CPU tensor as a literal or a host scalar; None where neither can hold it."""
    body = number.load(())
    made = ctx.builder.producer(number.name)
    while isinstance(made, Pointwise) and len(made.bodies) == 1:
        (known,) = made.bodies
        if isinstance(known, Const):
            return known
        made = ctx.builder.producer(known.buffer) if isinstance(known, Load) else None
    if number.dtype.is_float:
        return Scalar(ctx.host_scalar(body).name, f64)
    if number.dtype.is_bool:
        return Scalar(ctx.host_scalar(body).name, b1)
    return None if number.dtype == u64 else build.index(ctx.host_integer(body, f"{number.name}_value"))
