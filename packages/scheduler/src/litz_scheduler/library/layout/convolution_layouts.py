"""Bytes that a convolution moves for the layout of its activations: eager's, or channels-last (NHWC)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from litz_ir.contraction import ConvolutionArguments, convolution_arguments
from litz_ir.dtypes import DType, bf16, f16, f32
from litz_ir.loops import ContractionCall, Operation, TensorType, Value
from litz_scheduler.analysis.cost import static_bytes
from litz_scheduler.library.layout.channels_last_values import channels_last
from litz_scheduler.options import SchedulerOptions

RANKS = (4, 5)
"""Ranks of 2-d and 3-d activations. ATen has no channels-last for fewer dimensions."""


_FEW_CHANNELS = 3
"""The channels of an RGB input, up to which an activation counts as having few."""

WIDE_FILTER, WIDE_FILTER_SUMS = 3, 256
"""For depthwise convolutions in channels-last whose filter is wider than the first, oneDNN accumulates the gradient of
the weight in as many copies as the second says, and adds them up at the end."""


@dataclass(frozen=True, slots=True)
class LayoutCosts:
    """Bytes that a library's routine moves beyond reading and writing each activation once."""

    activation: int
    """For each byte of an activation that is not channels-last: its reorder."""
    grouped: int
    """The same, added for a convolution in groups."""
    weight: int
    """For each byte of the weight or its gradient where activations are channels-last: weights keep eager's layout."""
    wide: int
    """For each byte of the gradient of a weight in groups whose filter is wider than ``WIDE_FILTER``, where activations
    are channels-last."""
    follows: bool = False
    """True where the routine reads the weight in the layout of the activations, and reorders one of eager's layout in
    every call, for ``activation`` bytes each. False where it keeps its weights in a format of its own."""


_ONEDNN = LayoutCosts(activation=1, grouped=3, weight=4, wide=WIDE_FILTER_SUMS)
"""Measured on Zen 4 with f32: 0.04 ms for a megabyte of activation, 0.16 ms for one of weight. Without channels-last,
gradients of convolutions in groups are 1.5 to 16 times slower."""

_CUDNN = LayoutCosts(activation=2, grouped=0, weight=0, wide=0, follows=True)
"""Counted: tensor-core kernels read and write channels-last, so that a kernel copies every other activation before or
after. On an H100, inference in bf16 takes 0.63 (MobileNetV3) to 0.95 (a diffusion U-Net) of its device time in eager's
layout."""


@dataclass(frozen=True, slots=True)
class ConvolutionLayoutCost:
    """A convolution, or the gradients of one, with the cost of each layout of its activations."""

    call: ContractionCall
    """The call."""
    reads: tuple[str, ...]
    """The values that it reads in the layout of the call: the gradient of the output, if any, the input, and the weight
    where the library has no format of its own for it."""
    output: Value | None
    """The activation that it computes: the output, or the gradient of the input."""
    weight: Value | None
    """The gradient of the weight, where the call computes it."""
    eager_cost: int
    """Bytes moved beyond the activations themselves, with activations in eager's layout."""
    channels_last_cost: int
    """The same with activations in channels-last."""


def convolution_layout_cost(
    operation: Operation, values: Mapping[str, Value], options: SchedulerOptions
) -> ConvolutionLayoutCost | None:
    """Return the layout costs of a convolution that may run in channels-last; ``None`` for any other operation."""
    if not isinstance(operation, ContractionCall):
        return None
    arguments = convolution_arguments(operation.target, operation.arguments, operation.attributes)
    if arguments is None:
        return None
    backward = arguments.grad_output is not None
    reads = tuple(each.name for each in (arguments.grad_output, arguments.input) if each is not None)
    output, weight_gradient = _results(operation, arguments)
    activations = [values[name] for name in reads] + ([] if output is None else [output])
    weight = values[arguments.weight.name].type
    costs = _layout_costs(activations, weight, options)
    if costs is None or not all(
        is_activation(type_) for type_ in (*(value.type for value in activations), weight)
    ):
        return None
    computations = [] if backward else [activations]
    if backward:
        computations += [activations[::2]] if output is not None else []
        computations += [activations[:2]] if weight_gradient is not None else []
    moved = sum(
        static_bytes(value.type)
        for computation in computations
        for value in computation
        if not has_few_channels(value.type)
    )
    per_byte = costs.activation + (0 if arguments.groups == 1 else costs.grouped)
    weight_cost = costs.weight * len(computations)
    if (
        weight_gradient is not None
        and arguments.groups != 1
        and any(isinstance(size, int) and size > WIDE_FILTER for size in weight.shape[2:])
    ):
        weight_cost += costs.wide
    if costs.follows:
        reads = (*reads, arguments.weight.name)
        moved += static_bytes(weight)
    return ConvolutionLayoutCost(
        operation, reads, output, weight_gradient, per_byte * moved, weight_cost * static_bytes(weight)
    )


def _results(call: ContractionCall, arguments: ConvolutionArguments) -> tuple[Value | None, Value | None]:
    """Return the activation that a routine computes, and the gradient of the weight."""
    if arguments.grad_output is None:
        return call.results[0], None
    activation, weight = (
        value if wanted else None for value, wanted in zip(call.results[:2], arguments.output_mask)
    )
    return activation, weight


def _layout_costs(
    activations: list[Value], weight: TensorType, options: SchedulerOptions
) -> LayoutCosts | None:
    """Return the costs on the device of the call; ``None`` where channels-last cannot be faster there."""
    dtypes: set[DType] = {value.type.dtype for value in activations} | {weight.dtype}
    (dtype, *mixed), kind = dtypes, weight.device.kind
    if mixed or any(value.type.device.kind != kind for value in activations):
        return None
    if kind == "cpu":
        return _ONEDNN if options.prepack_convolutions and dtype in (f32, bf16, f16) else None
    low_precision = dtype in (bf16, f16) or (dtype == f32 and options.convolution_precision == "tf32")
    return _CUDNN if low_precision else None


def is_activation(type_: TensorType) -> bool:
    """Return whether a type is a non-empty 2-d or 3-d activation of static size."""
    return len(type_.shape) in RANKS and all(isinstance(size, int) and size > 0 for size in type_.shape)


def is_both_layouts(type_: TensorType) -> bool:
    """Return whether an activation is the same memory in both layouts: one channel, or one point."""
    _, channels, *rest = type_.shape
    return channels == 1 or all(size == 1 for size in rest)


def has_few_channels(type_: TensorType) -> bool:
    """Return whether libraries read an activation in either layout: its channels do not fill a vector register."""
    channels = type_.shape[1]
    return isinstance(channels, int) and channels <= _FEW_CHANNELS


def is_channels_last(type_: TensorType) -> bool:
    """Return whether an activation has channels-last strides; those of dimensions of size 1 do not count."""
    pairs = zip(type_.shape, type_.layout.strides, channels_last(type_).layout.strides, strict=True)
    return all(size == 1 or stride == expected for size, stride, expected in pairs)
