"""Calls of convolutions and of their gradients: their arguments, and the convolutions that they compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from litz_ir.contraction.signatures import by_role
from litz_ir.loops.nodes import Argument, Attributes, ContractionCall, Operation, Ref, TensorType, Value

CONVOLUTION = "aten.convolution.default"
"""ATen's overload of a convolution."""
CONVOLUTION_BACKWARD = "aten.convolution_backward.default"
"""ATen's overload of the gradients of a convolution."""

_GEOMETRY = (
    "stride=stride padding=padding dilation=dilation transposed=transposed output_padding=output_padding"
    " groups=groups"
)

CONVOLUTIONS: Mapping[str, str] = MappingProxyType(
    {
        CONVOLUTION: f"input=input weight=weight bias=bias {_GEOMETRY}",
        CONVOLUTION_BACKWARD: "grad_output=grad_output input=input weight=weight bias_sizes=bias_sizes"
        f" {_GEOMETRY} output_mask=output_mask",
    }
)
"""Signatures of the calls, by target."""

ConvolutionTensor = Literal["input", "output", "weight"]
"""A tensor of a convolution."""


@dataclass(frozen=True, slots=True)
class ConvolutionArguments:
    """Arguments of a call of a convolution of real tensors, or of its gradients."""

    input: Ref
    """Input of the convolution."""
    weight: Ref
    """Weight (filter)."""
    bias: Ref | None
    """``None`` without a bias, and for gradients, which do not read it."""
    stride: Argument
    """Stride of each dimension, or one for all."""
    padding: Argument
    """Padding at both ends of each dimension, or one for all."""
    dilation: Argument
    """Dilation of each dimension, or one for all."""
    transposed: bool
    """True for a transposed convolution."""
    groups: Argument
    """Number of groups."""
    grad_output: Ref | None
    """Gradient of the output; ``None`` for a forward convolution."""
    output_mask: tuple[Argument, ...]
    """For gradients: True for each of input, weight and bias whose gradient is requested."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """``output[n, o, y] = sum over i and r of input[n, i, y * stride + r * dilation - padding] * weight[o, i, r]``.

    Points outside the input count as zero; ``i`` runs over the channels of the group of ``o``. One of the three
    tensors is computed: the output, or the gradient of another one with respect to the output, which sums the same
    terms over the indices that the computed tensor does not have. A transposed convolution computes the input.
    """

    input: Value
    """Tensor of (N, C_in, spatial dimensions)."""
    output: Value
    """Tensor of (N, C_out, spatial dimensions)."""
    weight: Value
    """Tensor of (C_out, C_in / groups, spatial dimensions)."""
    stride: tuple[int, ...]
    """Stride of each spatial dimension."""
    padding: tuple[int, ...]
    """Zeros before and after each spatial dimension of the input."""
    dilation: tuple[int, ...]
    """Dilation of each spatial dimension."""
    groups: int
    """Number of groups."""
    computed: ConvolutionTensor
    """The tensor that is computed."""

    @property
    def kernel_size(self) -> tuple[int, ...]:
        """Spatial sizes of the weight."""
        return tuple(size for size in self.weight.type.shape[2:] if isinstance(size, int))

    @property
    def result(self) -> Value:
        """The value of the computed tensor."""
        return {"input": self.input, "output": self.output, "weight": self.weight}[self.computed]


@dataclass(frozen=True, slots=True)
class ConvolutionCall:
    """The convolution, or the requested gradients of one, that a call computes."""

    convolutions: tuple[Convolution, ...]
    """The convolutions: one in the forward direction, at most two for gradients."""
    bias: Value | None = None
    """Bias that is added to the channels of the only convolution."""
    bias_gradient: tuple[Value, Value] | None = None
    """Gradient of the bias, if requested, and the tensor whose channels it sums."""


def convolution_arguments(
    target: str, arguments: tuple[Argument, ...], attributes: Attributes = ()
) -> ConvolutionArguments | None:
    """The arguments of a call of :data:`CONVOLUTIONS` that gives all of them in order.

    ``None`` for other calls, and for complex tensors.
    """
    signature = CONVOLUTIONS.get(target)
    if signature is None or attributes or len(arguments) != len(signature.split()):
        return None
    given = by_role(signature, arguments, attributes)
    x, weight, bias, gradient = (given.get(role) for role in ("input", "weight", "bias", "grad_output"))
    mask = given.get("output_mask", ())
    if type(x) is not Ref or type(weight) is not Ref or not isinstance(mask, tuple):
        return None
    if (bias is not None and type(bias) is not Ref) or (gradient is not None and type(gradient) is not Ref):
        return None
    return ConvolutionArguments(
        x, weight, bias, given["stride"], given["padding"], given["dilation"], bool(given["transposed"]),
        given["groups"], gradient, mask,
    )  # fmt: skip


def convolution_call(operation: Operation, values: Mapping[str, Value]) -> ConvolutionCall | None:
    """The convolution, transposed or not, or the gradients of one, that a call computes.

    ``None`` for other operations, and if a size is unknown or 0.
    """
    if not isinstance(operation, ContractionCall):
        return None
    given = convolution_arguments(operation.target, operation.arguments, operation.attributes)
    if given is None:
        return None
    x, weight = values[given.input.name], values[given.weight.name]
    if given.grad_output is not None:
        return _gradients(operation, given, x, weight, values[given.grad_output.name])
    (result,) = operation.results
    found = _convolution(x, result, weight, given)
    return (
        None if found is None else ConvolutionCall((found,), values[given.bias.name] if given.bias else None)
    )


def _gradients(
    call: ContractionCall, given: ConvolutionArguments, x: Value, weight: Value, gradient: Value
) -> ConvolutionCall | None:
    found = _convolution(x, gradient, weight, given)
    if found is None:
        return None
    of_x, of_weight, of_bias = (
        value if requested else None for value, requested in zip(call.results, given.output_mask)
    )
    requested: list[Convolution] = []
    if of_x is not None and given.transposed:
        requested.append(replace(found, output=of_x, computed="output"))
    elif of_x is not None:
        requested.append(replace(found, input=of_x, computed="input"))
    if of_weight is not None:
        requested.append(replace(found, weight=of_weight, computed="weight"))
    return ConvolutionCall(tuple(requested), bias_gradient=None if of_bias is None else (of_bias, gradient))


def _convolution(x: Value, y: Value, weight: Value, given: ConvolutionArguments) -> Convolution | None:
    """The convolution of ``x`` whose result, or whose result's gradient, is ``y``."""
    if not all(_is_known(value.type) for value in (x, y, weight)) or not isinstance(given.groups, int):
        return None
    rank = len(x.type.shape) - 2
    stride, padding, dilation = (
        _numbers(each, rank) for each in (given.stride, given.padding, given.dilation)
    )
    if stride is None or padding is None or dilation is None or len(weight.type.shape) != rank + 2:
        return None
    source, target = (y, x) if given.transposed else (x, y)
    computed: ConvolutionTensor = "input" if given.transposed else "output"
    return Convolution(source, target, weight, stride, padding, dilation, given.groups, computed)


def _is_known(type_: TensorType) -> bool:
    return all(isinstance(size, int) and size > 0 for size in type_.shape)


def _numbers(argument: Argument, rank: int) -> tuple[int, ...] | None:
    """A number for each dimension, if all are known; a single one counts for all dimensions."""
    if not isinstance(argument, tuple):
        return None
    found = tuple(each for each in argument if isinstance(each, int))
    if len(found) < len(argument):
        return None
    found = found * rank if len(found) == 1 else found
    return found if len(found) == rank else None
