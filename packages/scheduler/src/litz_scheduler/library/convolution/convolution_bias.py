"""Separation of convolutions on a GPU from their bias and its gradient, which loops compute at no extra launch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from litz_ir.contraction import ConvolutionArguments, convolution_arguments
from litz_ir.dtypes import bf16, f16, f32, f64
from litz_ir.loops import (
    Argument,
    Axis,
    ContractionCall,
    NamedCombiner,
    Operation,
    Pointwise,
    Reduction,
    Value,
)
from litz_ir.origin import Origin
from litz_ir.scalar import Load, cast, op
from litz_ir.symbols import symbol
from litz_scheduler import reasons
from litz_scheduler.analysis.graph_facts import element_axes
from litz_scheduler.library.prices import bias_seconds
from litz_scheduler.library.strategy import Candidate, Choice, Prices, Rewriting

_DTYPES = (bf16, f16, f32, f64)


@dataclass(frozen=True, slots=True)
class UnfusedConvolutionBias:
    """A convolution on a GPU whose bias is added in a loop, or whose gradient is summed in one.

    The library adds a bias in a kernel of its own, after it has rounded the result, and sums the gradient in another.
    Loops do the same, and fuse with what reads the result or writes the gradient.
    """

    name: str = "unfused-convolution-bias"
    """The name of the strategy."""

    def candidate(self, call: ContractionCall, rewriting: Rewriting) -> Candidate | None:
        arguments = convolution_arguments(call.target, call.arguments, call.attributes)
        result = call.results[0]
        if arguments is None or not isinstance(result, Value) or result.type.dtype not in _DTYPES:
            return None
        machine = rewriting.gpu(result)
        gradient = arguments.grad_output
        if machine is None or (gradient is None and arguments.bias is None):
            return None
        if gradient is not None and not _has_bias_gradient(call, arguments):
            return None
        read = result if gradient is None else rewriting.values[gradient.name]

        def rewrite() -> tuple[Operation, ...]:
            if gradient is not None:
                return _gradient_unfused(call, arguments, read)
            assert arguments.bias is not None
            return _sum_unfused(call, result, arguments.bias.name)

        choices = (Choice(call.name, "call", reasons.LIBRARY_CONVOLUTION_BIAS),)
        return Candidate(choices, rewrite, Prices(0.0, bias_seconds(read.type, machine.model)))


def _has_bias_gradient(call: ContractionCall, arguments: ConvolutionArguments) -> bool:
    """Return whether a call computes the gradient of a bias."""
    return arguments.output_mask[2] is True and isinstance(call.results[2], Value)


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
    *mask, _ = arguments.output_mask
    result = call.results[2]
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
