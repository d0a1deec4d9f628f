"""Convolutions over few channels on a GPU, as those of three colours, and the gradients of their weights as loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

from litz_ir.contraction import Convolution, ConvolutionCall, convolution_call
from litz_ir.dtypes import bf16, f16, i64
from litz_ir.fused import Decision
from litz_ir.loops import ContractionCall, LoopGraph, Operation, Pointwise, Value, contiguous
from litz_ir.passes import PassContext
from litz_ir.scalar import Expr, Load, const, index, logical_and, masked, op, substitute_expr
from litz_ir.symbols import Size, add, symbol
from litz_ir.target import DeviceClass, DeviceModel
from litz_scheduler import reasons
from litz_scheduler.analysis.graph_facts import element_axes, output_names, readers_by_value
from litz_scheduler.library.convolution.convolution_loops import convolution_sum, sum_loops
from litz_scheduler.library.convolution.remaining_call import remaining_call
from litz_scheduler.library.layout.channels_last_values import channels_last
from litz_scheduler.library.layout.convolution_layouts import activation_bytes, is_channels_last

_DTYPES = (bf16, f16)

_RANK = 4
"""Rank of 2-d activations. Others have not been timed."""

_FEW = 2
"""Times that few channels fit into a vector. More have not been timed."""

_COLUMNS = 64
"""Output channels that the library computes at least at a time; it computes with zeros for what is missing."""

_STEP = 32
"""Elements that a loop sums at a time. A sum that is longer gathers whole vectors of channels: 7 x 7 by 2, 3 to 64
channels, 64 x 224 x 224 takes 312 us, with a fourth channel of zeros 133, with a border of zeros too 118; 3 x 3 by 2,
128 x 224 x 224, 3 to 16 channels, whose sum fits into one step, 35, 72 and 58 (H200, bf16, channels-last)."""

_SHARES: Mapping[str, float] = {"output": 0.1, "weight": 0.16}
"""Shares of the peak rate that the library reaches over channels padded to a vector (H200, bf16, channels-last: 3 to 64
channels, 7 x 7 by 2, 64 x 224 x 224: 445 us forward and 293 for the weight)."""

_SLOWNESS = 4
"""Time in which the library pads a byte of the input, by the time in which memory moves one (H200, 3 x 3 by 2,
128 x 3 x 224 x 224 and 64 x 3 x 224 x 224)."""

_GATHERED = 200
"""Operations of f32 that take as long as a loop's gathering of an element of an operand (H200: 0.33 to 1.5 elements in
a picosecond)."""


@dataclass(frozen=True, slots=True)
class NarrowConvolutions:
    """Replace convolutions in low precision whose input has few channels, and gradients of their weights, by loops.

    Tensor cores load whole vectors of channels: a library pads three or four channels to eight, in a copy of the input,
    and multiplies by the zeros. A loop gathers what there is, and fuses with pointwise readers of its result. Applies
    where a model finds that this takes less time.
    """

    name: str = "narrow-convolutions"
    """The name of the pass."""
    ulp: int = 64
    """The bound on changed results, in ULP."""
    devices: ClassVar[DeviceClass] = "gpu"
    """Devices of the graphs that the pass runs over."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        models = {d.kind: known.model for d, known in context.capabilities.items() if known.is_gpu}
        values, padding = data.values(), _Padding(data)
        for operation in data.operations:
            call = convolution_call(operation, values)
            chosen = () if call is None else _chosen(call, models)
            if not chosen:
                padding.operations.append(operation)
                continue
            assert isinstance(operation, ContractionCall) and call is not None
            made = {each.result.name for each in chosen}
            padding.operations += remaining_call(operation, call, made)
            for each in chosen:
                if each.computed == "output":
                    each = padding.aligned(each, operation)
                sum_ = convolution_sum(each, "mul")
                padding.operations += sum_loops(sum_, each.result, None, operation.origin)
                context.decide(Decision("library", each.result.name, "generate", reasons.LIBRARY_NARROW))
        return data.with_operations(tuple(padding.operations))


class _Padding:
    """The operations of a graph as they are emitted, with copies that have a power of two of channels."""

    def __init__(self, graph: LoopGraph) -> None:
        self.operations: list[Operation] = []
        """The operations emitted so far."""
        self._readers = readers_by_value(graph)
        self._returned = output_names(graph)
        self._made: set[str] = set()

    def aligned(self, convolution: Convolution, call: ContractionCall) -> Convolution:
        """Return a convolution over channels that fill vectors, where its sum is long and its input channels-last.

        Its input has the border of zeros, so that no element is tested, and its filter a power of two of points in a
        row where that makes the sum no longer.
        """
        x, weight = convolution.input, convolution.weight
        _, channels, *taps = (size for size in weight.type.shape if isinstance(size, int))
        count = _power_of_two(channels)
        if count == channels or channels * prod(taps) <= _STEP or not is_channels_last(x.type):
            return convolution
        wide = (*taps[:-1], _power_of_two(taps[-1]))
        if -(-count * prod(wide) // _STEP) == -(-count * prod(taps) // _STEP):
            taps = [*wide]
        geometry = zip(convolution.output.type.shape[2:], convolution.stride, convolution.dilation, taps)
        sizes = [(n - 1) * s + (k - 1) * d + 1 for n, s, d, k in geometry if isinstance(n, int)]
        return replace(
            convolution,
            input=self._padded(x, (count, *sizes), convolution.padding, call),
            weight=self._padded(weight, (count, *taps), (0,) * len(taps), call),
            padding=(0,) * len(taps),
        )

    def _padded(
        self, value: Value, sizes: Sequence[int], before: Sequence[int], call: ContractionCall
    ) -> Value:
        """Return a copy in channels-last of other ``sizes`` behind the first, with zeros where the value has nothing.

        ``before`` has the zeros before each spatial dimension. The loop that computes the value makes the copy instead,
        where nothing else reads the value and the copy has all of it, so that it reports the same faults.
        """
        shape = (value.type.shape[0], *sizes)
        type_ = channels_last(replace(value.type, shape=shape, layout=contiguous(shape, fixed=True)))
        copy = Value(f"{value.name}.padded{'x'.join(map(str, (*sizes, *before)))}", type_)
        if copy.name in self._made:
            return copy
        self._made.add(copy.name)
        axes = element_axes(type_)
        batch, channel, *inner = (symbol(axis.name) for axis in axes)
        points = (batch, channel, *(add(at, -count) for at, count in zip(inner, before)))
        body: Expr = Load(value.name, points, type_.dtype)
        whole = all(
            padded - count >= size
            for padded, count, size in zip(sizes, (0, *before), value.type.shape[1:])
            if isinstance(size, int)
        )
        at, producer = self._sole_producer(value, call) if whole else (len(self.operations), None)
        if producer is not None:
            own = {axis.name: point for axis, point in zip(producer.axes, points, strict=True)}
            body = substitute_expr(producer.bodies[0], own)
        pairs = zip(points[1:], value.type.shape[1:], sizes, (0, *before))
        inside = [test for at_, size, all_, count in pairs for test in _tests(at_, size, all_, count)]
        body = masked(logical_and(*inside), body, const(0, type_.dtype))
        origin = call.origin if producer is None else producer.origin
        self.operations[at : at + (producer is not None)] = [
            Pointwise(results=(copy,), axes=axes, bodies=(body,), origin=origin)
        ]
        return copy

    def _sole_producer(self, value: Value, call: ContractionCall) -> tuple[int, Pointwise | None]:
        """Return the loop that computes a value for a call alone, with its position among the operations; their end
        without one."""
        alone = value.name not in self._returned and all(each is call for each in self._readers[value.name])
        for at, operation in enumerate(self.operations if alone and value.replaces is None else ()):
            if isinstance(operation, Pointwise) and operation.results == (value,) and not operation.token:
                return at, operation
        return len(self.operations), None


def _tests(at: Size, size: Size, padded: int, before: int) -> tuple[Expr, ...]:
    """Return the tests that an index into a padded dimension, less the zeros before it, is one of the dimension."""
    assert isinstance(size, int), "the sizes of a convolution are known"
    low = (op("ge", index(at), const(0, i64)),) if before else ()
    return (*low, op("lt", index(at), index(size))) if padded - before > size else low


def _power_of_two(size: int) -> int:
    """Return the next power of two."""
    return 1 << (size - 1).bit_length()


def _chosen(call: ConvolutionCall, models: Mapping[str, DeviceModel]) -> tuple[Convolution, ...]:
    """Return those convolutions of a call that loops compute in less time."""
    if call.bias is not None:
        return ()
    return tuple(each for each in call.convolutions if _is_narrow(each, models) and _pays(each, models))


def _is_narrow(convolution: Convolution, models: Mapping[str, DeviceModel]) -> bool:
    """Return whether the input of a convolution has few channels, and the convolution a form that has been timed."""
    types = (convolution.input.type, convolution.output.type, convolution.weight.type)
    dtype = types[0].dtype
    model = models.get(convolution.result.type.device.kind)
    if model is None or model.matrix_rate == 0 or convolution.computed not in _SHARES:
        return False
    if dtype not in _DTYPES or any(type_.dtype != dtype for type_ in types) or len(types[0].shape) != _RANK:
        return False
    outputs, channels, *_ = types[2].shape
    assert isinstance(outputs, int) and isinstance(channels, int), "the sizes of a convolution are known"
    few, many = channels * _FEW, outputs
    return convolution.groups == 1 and few * dtype.itemsize <= model.vector_bytes <= many * dtype.itemsize


def _pays(convolution: Convolution, models: Mapping[str, DeviceModel]) -> bool:
    """Return whether loops take less time than the library and its padding of the input."""
    model, x = models[convolution.result.type.device.kind], convolution.input.type
    batch, _, *points = convolution.output.type.shape
    rows = prod(size for size in (batch, *points) if isinstance(size, int))
    outputs, channels, *taps = (size for size in convolution.weight.type.shape if isinstance(size, int))
    padded = model.vector_bytes // x.dtype.itemsize
    flops = 2 * rows * prod(taps) * padded * max(outputs, _COLUMNS)
    copied = activation_bytes(x) * (1 + padded / channels)
    seconds = flops / (_SHARES[convolution.computed] * model.matrix_rate)
    seconds += _SLOWNESS * copied / model.memory_rate
    gathered = rows * prod(taps) * channels * -(-outputs // (2 * _COLUMNS))
    return _GATHERED * gathered / model.flop_rate < seconds + model.launch_seconds
