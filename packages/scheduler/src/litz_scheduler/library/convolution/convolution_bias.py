"""Separation of convolutions on a GPU from their bias and its gradient, which loops compute at no extra launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from litz_ir.contraction import ConvolutionArguments, convolution_arguments
from litz_ir.dtypes import bf16, f16, f32, f64
from litz_ir.fused import Decision
from litz_ir.loops import (
    Argument,
    Axis,
    ContractionCall,
    LoopGraph,
    NamedCombiner,
    Operation,
    Pointwise,
    Reduction,
    Value,
)
from litz_ir.origin import Origin
from litz_ir.passes import PassContext
from litz_ir.scalar import Load, cast, op
from litz_ir.symbols import symbol
from litz_ir.target import DeviceClass
from litz_scheduler import reasons
from litz_scheduler.analysis.graph_facts import element_axes
from litz_scheduler.legality.matmul import gpu_kinds

_DTYPES = (bf16, f16, f32, f64)


@dataclass(frozen=True, slots=True)
class UnfuseConvolutionBias:
    """Add the bias of a convolution on a GPU in a loop, and sum its gradient in one.

    The library adds a bias in a kernel of its own, after it has rounded the result, and sums the gradient in another.
    Loops do the same, and fuse with what reads the result or writes the gradient.
    """

    name: str = "unfuse-convolution-bias"
    """The name of the pass."""
    ulp: int = 64
    """The bound on changed results, in ULP."""
    devices: ClassVar[DeviceClass] = "gpu"
    """Devices of the graphs that the pass runs over."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        kinds, values = gpu_kinds(context), data.values()
        operations: list[Operation] = []
        for operation in data.operations:
            loops = _unfused(operation, values, kinds) if isinstance(operation, ContractionCall) else ()
            if loops:
                context.decide(Decision("library", operation.name, "call", reasons.LIBRARY_CONVOLUTION_BIAS))
            operations.extend(loops or (operation,))
        return data.with_operations(tuple(operations))


def _unfused(
    call: ContractionCall, values: Mapping[str, Value], kinds: frozenset[str]
) -> tuple[Operation, ...]:
    """Return the call without its bias, and the loop that adds or sums it; empty where the call has none."""
    arguments = convolution_arguments(call.target, call.arguments, call.attributes)
    first = call.results[0]
    if arguments is None or not isinstance(first, Value) or first.type.device.kind not in kinds:
        return ()
    if first.type.dtype not in _DTYPES:
        return ()
    if arguments.grad_output is not None:
        return _gradient_unfused(call, arguments, values[arguments.grad_output.name])
    return () if arguments.bias is None else _sum_unfused(call, first, arguments.bias.name)


def _sum_unfused(call: ContractionCall, result: Value, bias: str) -> tuple[Operation, ...]:
    convolved, type_ = Value(f"{call.name}.convolved", result.type), result.type
    axes = element_axes(type_)
    points = tuple(symbol(axis.name) for axis in axes)
    body = op("add", Load(convolved.name, points, type_.dtype), Load(bias, points[1:2], type_.dtype))
    x, weight, _, *geometry = call.arguments
    plain = replace(call, results=(convolved,), arguments=(x, weight, None, *geometry))
    return plain, Pointwise(results=(result,), axes=axes, bodies=(body,), origin=call.origin)


def _gradient_unfused(
    call: ContractionCall, arguments: ConvolutionArguments, gradient: Value
) -> tuple[Operation, ...]:
    """Return the gradients of input and weight, and the sum of the gradient over each channel.

    The call is left out where the gradient of the bias is the only one.
    """
    *mask, of_bias = arguments.output_mask
    result = call.results[2]
    if of_bias is not True or not isinstance(result, Value):
        return ()
    others = call.results[0], call.results[1], replace(result, name=f"{result.name}.unread")
    given: tuple[Argument, ...] = (*call.arguments[:-1], (*mask, False))
    plain = (replace(call, results=others, arguments=given),) if any(mask) else ()
    return *plain, *channel_sums(result, gradient, call.origin)


def channel_sums(result: Value, source: Value, origin: Origin) -> tuple[Operation, ...]:
    """Return the loops of a bias gradient: the sum over each channel of ``source``, in f32 or f64, rounded once."""
    batch, _, *rest = source.type.shape
    axes = element_axes(result.type)
    summed = (Axis("n", batch), *(Axis(f"y{k}", size) for k, size in enumerate(rest)))
    point = (symbol("n"), symbol(axes[0].name), *(symbol(axis.name) for axis in summed[1:]))
    dtype = result.type.dtype
    accumulator = f64 if dtype == f64 else f32
    total = (
        result
        if dtype == accumulator
        else Value(f"{result.name}.sum", replace(result.type, dtype=accumulator))
    )
    reduction = Reduction(
        results=(total,), axes=axes, reduce_axes=summed, combiner=NamedCombiner("sum"),
        bodies=(cast(Load(source.name, point, source.type.dtype), accumulator),), origin=origin,
    )  # fmt: skip
    if total is result:
        return (reduction,)
    body = cast(Load(total.name, (symbol(axes[0].name),), accumulator), dtype)
    return reduction, Pointwise(results=(result,), axes=axes, bodies=(body,), origin=origin)
