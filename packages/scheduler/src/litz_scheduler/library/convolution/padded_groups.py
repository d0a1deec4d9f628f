"""Padding of convolutions in groups on a GPU whose library has kernels for groups of a power of two alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from litz_ir.contraction import CONVOLUTION, Convolution, convolution_arguments
from litz_ir.dtypes import bf16, f16
from litz_ir.loops import (
    ContractionCall,
    Operation,
    Pointwise,
    TensorType,
    Value,
    contiguous,
    rename_reads,
)
from litz_ir.scalar import Expr, Load, const, index, logical_and, masked, op
from litz_ir.symbols import Size, add, floordiv, mod, mul, symbol
from litz_ir.target import DeviceModel, RoutineModel
from litz_scheduler import reasons
from litz_scheduler.analysis.cost import next_power_of_two, static_bytes
from litz_scheduler.analysis.graph_facts import element_axes
from litz_scheduler.library.layout.channels_last_values import channels_last
from litz_scheduler.library.layout.convolution_layouts import (
    is_activation,
    is_both_layouts,
    is_channels_last,
)
from litz_scheduler.library.strategy import Candidate, Choice, Prices, Rewriting

_DTYPES = (bf16, f16)

_UNIT = 8
"""Channels of an access of tensor cores. Groups of 4 channels are quickest as they are (H100)."""


@dataclass(frozen=True, slots=True)
class PaddedGroups:
    """A convolution in groups on a GPU, in low precision, whose groups' channels are padded to a power of two.

    A library that pads them does so in copies of its own, one for each tensor in every call. Loops write operands with
    zeros behind each group, as part of what computes them where nothing else reads that, and readers of a result skip
    what is behind its groups. Gradients are padded likewise.
    """

    name: str = "padded-groups"
    """The name of the strategy."""

    def candidate(self, call: ContractionCall, rewriting: Rewriting) -> Candidate | None:
        groups = _groups(call, rewriting)
        machine = None if groups is None else rewriting.gpu(groups.operands[0].value)
        if groups is None or machine is None or machine.routines is None or not machine.model.matrix_rate:
            return None
        prices = groups.prices(machine.routines, machine.model)
        choices = (Choice(call.name, "pad", reasons.LIBRARY_GROUPS),)
        return Candidate(choices, lambda: _padded_call(groups, rewriting), prices)


_Role = Literal["input", "output", "weight"]
_Widths = Mapping[int, tuple[int, int]]
"""By dimension, the channels of a group as they are and padded."""


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor of a convolution, or the gradient of one."""

    value: Value
    role: _Role

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return static_bytes(self.value.type)


@dataclass(frozen=True, slots=True)
class _Groups:
    """A convolution in groups, or the gradients of one."""

    call: ContractionCall
    operands: tuple[_Tensor, ...]
    """The tensors that it reads, in the order of its arguments."""
    results: tuple[_Tensor, ...]
    """The tensors that it computes, without gradients that are not requested."""
    widths: Mapping[_Role, _Widths]
    """The dimensions of each tensor that have groups."""
    geometry: Convolution
    """The convolution, or one of those that compute its gradients, without padding."""

    def prices(self, routines: RoutineModel, model: DeviceModel) -> Prices:
        """Return the seconds of multiplications by zero and of copies by loops, and of the library's own copies."""
        moved = sum(
            each.nbytes
            for computed in self.results
            for each in (*self.operands, computed)
            if each.role != "weight" and (each.role != computed.role or each is computed)
        )
        growth = {
            role: prod(padded / width for width, padded in dimensions.values())
            for role, dimensions in self.widths.items()
        }
        flops = self.call.flops if isinstance(self.call.flops, int) else 0
        zeros = flops * (growth["weight"] - 1) / (routines.grouped_share * model.matrix_rate)
        tensors = [each for each in (*self.operands, *self.results) if growth[each.role] > 1]
        copied = sum((1 + growth[each.role]) * each.nbytes for each in tensors)
        copies = copied / model.memory_rate + len(tensors) * model.launch_seconds
        return Prices(zeros + copies, routines.group_slowness * moved / model.memory_rate)


def _groups(call: ContractionCall, rewriting: Rewriting) -> _Groups | None:
    """Return the convolution of a call whose groups have a multiple of 8 channels and no power of two."""
    values = rewriting.values
    arguments = convolution_arguments(call.target, call.arguments, call.attributes)
    if arguments is None or arguments.transposed or arguments.bias is not None:
        return None
    count = arguments.groups
    x, weight = (
        _Tensor(values[arguments.input.name], "input"),
        _Tensor(values[arguments.weight.name], "weight"),
    )
    operands, results = [x, weight], [_Tensor(call.results[0], "output")]
    if arguments.grad_output is not None:
        operands.insert(0, _Tensor(values[arguments.grad_output.name], "output"))
        *mask, of_bias = arguments.output_mask
        if of_bias is not False:
            return None
        roles: tuple[_Role, ...] = ("input", "weight")
        results = [
            _Tensor(value, role)
            for value, role, wanted in zip(call.results, roles, mask, strict=False)
            if wanted
        ]
    tensors, known = (*operands, *results), rewriting.convolution(call)
    if not isinstance(count, int) or count < 2 or known is None or not results or not _suit(tensors):
        return None
    outputs, inputs, *_ = weight.value.type.shape
    assert isinstance(inputs, int) and isinstance(outputs, int)
    widths = (inputs, outputs // count)
    if any(width % _UNIT for width in widths) or all(next_power_of_two(width) == width for width in widths):
        return None
    c, o = ((width, next_power_of_two(width)) for width in widths)
    dimensions: Mapping[_Role, _Widths] = {"input": {1: c}, "output": {1: o}, "weight": {0: o, 1: c}}
    return _Groups(call, tuple(operands), tuple(results), dimensions, known.convolutions[0])


def _suit(tensors: Sequence[_Tensor]) -> bool:
    """Return whether tensors have two spatial dimensions, known sizes and one dtype of low precision, and are
    contiguous or channels-last.

    Activations of one point are in both layouts, and a library decides which it returns.
    """
    types = [each.value.type for each in tensors]
    if len({(type_.dtype, type_.device) for type_ in types}) != 1 or types[0].dtype not in _DTYPES:
        return False
    if not all(len(type_.shape) == 4 and is_activation(type_) for type_ in types):
        return False
    return all(
        (_is_contiguous(each.value.type) or is_channels_last(each.value.type))
        and (each.role == "weight" or not is_both_layouts(each.value.type))
        for each in tensors
    )


def _padded_call(groups: _Groups, rewriting: Rewriting) -> Iterator[Operation]:
    """Yield a convolution of padded operands, and loops that read its results without the padding."""
    names: dict[str, str] = {}
    for each in groups.operands:
        yield from _padded_operand(each.value, groups.widths[each.role], names, rewriting)
    computed = {each.value.name: groups.widths[each.role] for each in groups.results}
    results, loops = [], []
    for value in groups.call.results:
        assert isinstance(value, Value)
        if value.name in computed and any(width != padded for width, padded in computed[value.name].values()):
            whole = Value(f"{value.name}.padded", _padded(value.type, computed[value.name]))
            loops.append(_without_padding(value, whole, computed[value.name], groups.call))
            value = whole
        results.append(value)
    call = replace(groups.call, results=tuple(results))
    calls = _one_by_one(call, groups.geometry) if len(groups.results) == 2 else (call,)
    yield from (rename_reads(each, names) for each in calls)
    yield from loops


def _padded_operand(
    value: Value, widths: _Widths, names: dict[str, str], rewriting: Rewriting
) -> Iterator[Pointwise]:
    """Add the name of an operand with zeros behind each group to ``names``, and yield its loop the first time."""
    grown = {at: (width, padded) for at, (width, padded) in widths.items() if width != padded}
    if not grown:
        return
    name = names[value.name] = f"{value.name}.groups{'x'.join(str(width) for width, _ in widths.values())}"
    if name in rewriting.made:
        return
    rewriting.made.add(name)
    type_ = _padded(value.type, widths)
    axes = element_axes(type_)
    points: list[Size] = [symbol(axis.name) for axis in axes]
    inside = [op("lt", index(mod(points[at], padded)), index(width)) for at, (width, padded) in grown.items()]
    for at, (width, padded) in grown.items():
        points[at] = _regrouped(points[at], padded, width, value.type.shape[at])
    load: Expr = Load(value.name, tuple(points), type_.dtype)
    body = masked(logical_and(*inside), load, const(0, type_.dtype))
    type_ = replace(type_, layout=replace(type_.layout, fixed=False))
    yield Pointwise(results=(Value(name, type_),), axes=axes, bodies=(body,))


def _one_by_one(call: ContractionCall, geometry: Convolution) -> tuple[ContractionCall, ContractionCall]:
    """Return a call for the gradient of the weight, and one for that of the input, of a call that computes both.

    The second is a transposed convolution, which does not read the input: that need not be in memory together with its
    gradient, which is as large.
    """
    gradient, _, weight, *_ = call.arguments
    of_input, of_weight, of_bias = call.results
    assert isinstance(of_input, Value), "complex convolutions have other calls"
    flops = floordiv(call.flops, 2)
    nothing = Value(f"{of_input.name}.unread", replace(of_input.type, shape=(0,), layout=contiguous((0,))))
    first = replace(
        call,
        results=(nothing, of_weight, of_bias),
        arguments=(*call.arguments[:-1], (False, True, False)),
        flops=flops,
    )
    sizes = zip(
        geometry.input.type.shape[2:], geometry.output.type.shape[2:], geometry.kernel_size,
        geometry.stride, geometry.padding, geometry.dilation, strict=True,
    )  # fmt: skip
    rest = tuple(
        size - ((extent - 1) * stride - 2 * padding + dilation * (taps - 1) + 1)
        for size, extent, taps, stride, padding, dilation in sizes
        if isinstance(size, int) and isinstance(extent, int)
    )
    second = replace(
        call, results=(of_input,), target=CONVOLUTION, unpack=False, flops=flops,
        arguments=(
            gradient, weight, None, geometry.stride, geometry.padding, geometry.dilation, True, rest, geometry.groups
        ),
    )  # fmt: skip
    return first, second


def _without_padding(value: Value, whole: Value, widths: _Widths, call: ContractionCall) -> Pointwise:
    """Return the loop that reads a result without what is behind its groups."""
    axes = element_axes(value.type)
    points: list[Size] = [symbol(axis.name) for axis in axes]
    for at, (width, padded) in widths.items():
        points[at] = _regrouped(points[at], width, padded, value.type.shape[at])
    body = Load(whole.name, tuple(points), value.type.dtype)
    return Pointwise(results=(value,), axes=axes, bodies=(body,), origin=call.origin)


def _regrouped(point: Size, width: int, other: int, channels: Size) -> Size:
    """Return the channel in groups of ``other`` channels that a channel in groups of ``width`` is.

    ``channels`` is their number without padding; one group alone, as of a weight's input channels, is its beginning.
    """
    if channels == min(width, other):
        return point
    return add(mul(floordiv(point, width), other), mod(point, width))


def _padded(type_: TensorType, widths: _Widths) -> TensorType:
    """Return the type of a tensor with padded groups, in the same order of dimensions in memory."""
    shape = list(type_.shape)
    for at, (width, padded) in widths.items():
        size = shape[at]
        assert isinstance(size, int)
        shape[at] = size // width * padded
    layout = replace(type_.layout, strides=contiguous(shape).strides, offset=0)
    whole = replace(type_, shape=tuple(shape), layout=layout)
    return channels_last(whole) if _is_last(type_) else whole


def _is_last(type_: TensorType) -> bool:
    """Return whether a tensor is channels-last, and not contiguous too."""
    return is_channels_last(type_) and not _is_contiguous(type_)


def _is_contiguous(type_: TensorType) -> bool:
    pairs = zip(type_.shape, type_.layout.strides, contiguous(type_.shape).strides, strict=True)
    return all(size == 1 or stride == expected for size, stride, expected in pairs)
