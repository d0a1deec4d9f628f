"""Arguments of a rule: tensors on the device of its results, also of numbers where all arguments are numbers."""

from __future__ import annotations

from typing import Any

import torch

from litz_ir.device import CPU
from litz_ir.dtypes import b1, f64, i64, u64
from litz_ir.loops import Pointwise
from litz_ir.scalar import Const, Expr, Load, Scalar, build
from litz_ir.symbols import Term
from litz_lowering.aten.fallback import copied_to
from litz_lowering.contexts.context import LoweringContext
from litz_lowering.contexts.registry import RuleEntry
from litz_lowering.contexts.values import Complex, Tensor

_ELSEWHERE = "an argument is on another device"


def rule_arguments(
    ctx: LoweringContext, entry: RuleEntry, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a node as its rule takes them."""
    if not any(isinstance(each, Tensor | Complex | tuple) for each in args):
        args = _numbers_as_tensors(ctx, args)
    if entry.moves:
        return args, kwargs
    return on_result_device(ctx, args), on_result_device(ctx, kwargs)


def _numbers_as_tensors(ctx: LoweringContext, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Make 0-d CPU tensors of numbers where the schema takes tensors, as torch does.

    ``torch.vmap`` passes the numbers that it does not batch to operators that take tensors alone.
    """
    schema = getattr(ctx.node.target, "_schema", None)
    if schema is None:
        return args
    return tuple(
        _as_tensor(ctx, value) if isinstance(formal.type, torch.TensorType) else value
        for value, formal in zip(args, schema.arguments, strict=False)
    )


def _as_tensor(ctx: LoweringContext, value: Any) -> Any:
    """Make a 0-d tensor of a real number; other values are returned."""
    if not isinstance(value, int | float | Term | Expr):
        return value
    is_integer = isinstance(value, int | Term)
    dtype = b1 if isinstance(value, bool) else i64 if is_integer else f64
    dtype = value.dtype if isinstance(value, Expr) else dtype
    number = ctx.number(value, dtype)
    return ctx.pointwise(lambda axes: number, ctx.temporary(dtype, (), CPU), "number")


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
