"""Convolutions over images, and what either layout of the images costs each: as eager has it, or channels-last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from litz_ir.contraction import ConvolutionArguments, convolution_arguments
from litz_ir.dtypes import DType, bf16, f16, f32
from litz_ir.loops import ContractionCall, Operation, TensorType, Value
from litz_ir.symbols import Size
from litz_scheduler.library.channels_last_values import channels_last
from litz_scheduler.options import SchedulerOptions

RANKS = (4, 5)
"""Images and volumes. ATen has no channels-last for fewer dimensions."""


FEW_CHANNELS = 3
"""The channels of a coloured picture."""

WIDE_FILTER, WIDE_FILTER_SUMS = 3, 256
"""For kernels wider than this, in channels-last and depthwise, oneDNN holds this many sums of each element of the
weight's gradient, which it adds up in the end."""


@dataclass(frozen=True, slots=True)
class LayoutCosts:
    """Bytes that a library's routine moves beyond reading and writing each of its images once, in a pass over memory.

    ``activation`` for each byte of an image that is not in channels-last: its reorder. ``grouped`` for those of a
    convolution in groups besides. ``weight`` for each byte of the weight or of its gradient where images are in
    channels-last: weights stay as eager has them. ``wide`` for the gradient of a weight in groups, of more points than
    three in a row.
    """

    activation: int
    grouped: int
    weight: int
    wide: int


ONEDNN = LayoutCosts(activation=1, grouped=3, weight=4, wide=WIDE_FILTER_SUMS)
"""Measured on Zen 4 with f32: 0.04 ms for a megabyte of image, 0.16 ms for one of weight; without channels-last
gradients of convolutions in groups are slower by a factor of 1.5 to 16."""

CUDNN = LayoutCosts(activation=2, grouped=0, weight=4, wide=0)
"""Counted, not measured: kernels for tensor cores read and write channels-last, so that every other image is copied by
a kernel before or after. Those in groups run on no tensor cores."""


@dataclass(frozen=True, slots=True)
class ConvolutionLayoutCost:
    """A convolution, or the gradients of one: the images that it reads and gives, and the gradient of its weight.

    ``eager_cost`` and ``channels_last_cost`` are what it moves beyond them, in bytes, with images as eager has them
    and in channels-last.
    """

    call: ContractionCall
    reads: tuple[str, ...]
    output: Value | None
    weight: Value | None
    eager_cost: int
    channels_last_cost: int


def convolution_layout_cost(
    operation: Operation, values: Mapping[str, Value], options: SchedulerOptions
) -> ConvolutionLayoutCost | None:
    """What a convolution that may take its images in channels-last costs; None for any other operation."""
    if not isinstance(operation, ContractionCall):
        return None
    given = convolution_arguments(operation.target, operation.arguments, operation.attributes)
    if given is None:
        return None
    backward = given.grad_output is not None
    reads = tuple(each.name for each in (given.grad_output, given.input) if each is not None)
    image, gradient = _results(operation, given)
    images = [values[name] for name in reads] + ([] if image is None else [image])
    kernel = values[given.weight.name].type
    prices = _prices(images, kernel, options)
    if prices is None or not all(
        is_activation(type_) for type_ in (*(value.type for value in images), kernel)
    ):
        return None
    parts = [] if backward else [images]
    if backward:
        parts += [images[::2]] if image is not None else []
        parts += [images[:2]] if gradient is not None else []
    moved = sum(
        activation_bytes(value.type) for part in parts for value in part if not has_few_channels(value.type)
    )
    dear = prices.activation + (0 if given.groups == 1 else prices.grouped)
    sums = prices.weight * len(parts)
    if gradient is not None and given.groups != 1 and max(map(_known, kernel.shape[2:])) > WIDE_FILTER:
        sums += prices.wide
    return ConvolutionLayoutCost(
        operation, reads, image, gradient, dear * moved, sums * activation_bytes(kernel)
    )


def _results(call: ContractionCall, given: ConvolutionArguments) -> tuple[Value | None, Value | None]:
    """The image that a routine gives, and the gradient of a weight."""
    if given.grad_output is None:
        return call.results[0], None
    image, weight = (value if wanted else None for value, wanted in zip(call.results[:2], given.output_mask))
    return image, weight


def _prices(images: list[Value], kernel: TensorType, options: SchedulerOptions) -> LayoutCosts | None:
    """What layouts cost on the device at hand; None where channels-last gains nothing there."""
    dtypes: set[DType] = {value.type.dtype for value in images} | {kernel.dtype}
    (dtype, *mixed), kind = dtypes, kernel.device.kind
    if mixed or any(value.type.device.kind != kind for value in images):
        return None
    if kind == "cpu":
        return ONEDNN if options.prepack_convolutions and dtype in (f32, bf16, f16) else None
    if options.channels_last == "cpu":
        return None
    narrow = dtype in (bf16, f16) or (dtype == f32 and options.convolution_precision == "tf32")
    return CUDNN if narrow else None


def is_activation(type_: TensorType) -> bool:
    """True for images and volumes of known size with elements."""
    return len(type_.shape) in RANKS and all(isinstance(size, int) and size > 0 for size in type_.shape)


def is_both_layouts(type_: TensorType) -> bool:
    """True for images that are the same memory in both layouts: of one channel, or of one point."""
    _, channels, *rest = type_.shape
    return channels == 1 or all(size == 1 for size in rest)


def has_few_channels(type_: TensorType) -> bool:
    """True for images that libraries read as they are, and that fill no register with the channels of a point."""
    channels = type_.shape[1]
    return isinstance(channels, int) and channels <= FEW_CHANNELS


def is_channels_last(type_: TensorType) -> bool:
    """True for images in channels-last."""
    pairs = zip(type_.shape, type_.layout.strides, channels_last(type_).layout.strides, strict=True)
    return all(size == 1 or given == wanted for size, given, wanted in pairs)


def _known(size: Size) -> int:
    assert isinstance(size, int)
    return size


def activation_bytes(type_: TensorType) -> int:
    """The bytes of an image."""
    return prod(map(_known, type_.shape)) * type_.dtype.itemsize
