"""Convolutions of inference: prepacked weights, channels-last activations, batch norms folded, activations fused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import ClassVar

from litz_ir.contraction import MOST_FILTER_POINTS, convolution_arguments
from litz_ir.device import CPU
from litz_ir.dtypes import f32
from litz_ir.fused import Decision, Reason
from litz_ir.loops import (
    Argument,
    Axis,
    ContractionCall,
    Extern,
    LoopGraph,
    Operation,
    Pointwise,
    Reduction,
    Ref,
    TensorType,
    Value,
    contiguous,
    sizes_in,
)
from litz_ir.passes import PassContext
from litz_ir.scalar import Expr, Load, loads, op, substitute_expr
from litz_ir.symbols import Size, symbol
from litz_ir.target import DeviceClass
from litz_scheduler import reasons
from litz_scheduler.analysis.graph_facts import is_identity
from litz_scheduler.library.constants.frozen_region import FrozenRegion
from litz_scheduler.library.convolution.channelwise import Affine, split
from litz_scheduler.library.convolution.tiled_convolutions import GATHERED_DEPTH, TiledConvolution, biased
from litz_scheduler.library.layout.channels_last_values import ChannelsLastValues, channels_last
from litz_scheduler.library.matmul.activations import activation
from litz_scheduler.options import SchedulerOptions


@dataclass(frozen=True, slots=True)
class PrepackConvolutions:
    """Replace 2-d f32 convolutions on the CPU whose weight is frozen by oneDNN's ``convolution``.

    The routine reads and writes channels-last and takes a weight that ``prepack_convolution`` reorders once, in the
    frozen region. A reader that scales and shifts each channel by frozen values, such as a batch norm, becomes part of
    weight and bias; a following activation of :data:`litz_scheduler.library.matmul.activations.ACTIVATIONS` is fused.
    Convolutions that the CPU's kernels compute sooner, in tiles, become sums over prepacked weights.
    """

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    """``prepack_convolutions`` turns the pass on."""
    name: str = "prepack-convolutions"
    """The name of the pass."""
    ulp: int = 64
    """The bound on changed results, in ULP."""
    devices: ClassVar[DeviceClass] = "cpu"
    """Devices of the graphs that the pass runs over."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        if not self.options.prepack_convolutions or not data.frozen:
            return data
        values = data.values()
        frozen = {name: values[name] for name in data.frozen}
        convolutions = {
            o.name: convolution
            for o in data.operations
            if (convolution := _parse(o, values, frozen)) is not None
        }
        machine = context.machine(CPU)
        columns = 0 if machine is None else machine.panel_columns
        tiled = {
            name: tiled
            for name, convolution in convolutions.items()
            if (tiled := convolution.tiled(columns, self.options.tile_flops)) is not None
        }
        return _PrepackRewriter(data, convolutions, tiled, context).run() if convolutions else data


@dataclass(frozen=True, slots=True)
class _Convolution:
    """The arguments of a convolution that ``convolution`` can run."""

    x: str
    """The input, of shape (batch, channels, height, width)."""
    weight: Value
    """The frozen weight, of shape (output channels, input channels of a group, height, width)."""
    bias: str | None
    """The frozen bias, of shape (output channels,)."""
    shape: tuple[Size, ...]
    """The shape of the input."""
    geometry: tuple[Argument, ...]
    """Paddings, strides and dilations, two of each, and the number of groups."""

    result: tuple[Size, ...]
    """The shape of the output."""

    def tiled(self, columns: int, flops: int) -> TiledConvolution | None:
        """Return the convolution as one for kernels that compute tiles, with panels of ``columns``.

        ``None`` where it is left to the routine, which is quicker above ``flops`` operations.
        """
        padding, stride, dilation, groups = self.geometry
        shape, weight = _numbers(self.shape), _numbers(self.weight.type.shape)
        geometry = tuple(_numbers(each) for each in (padding, stride, dilation))
        if not columns or not flops or any(len(each) != 2 for each in geometry):
            return None
        found = TiledConvolution(shape, weight, geometry[0], geometry[1], geometry[2], columns)
        taps, depth = weight[2] * weight[3], prod(weight[1:])
        if found.depthwise:
            return found if groups == shape[1] and taps > 1 else None
        if found.gathered:
            return found if groups == 1 and depth <= GATHERED_DEPTH else None
        if max(weight[2:]) > MOST_FILTER_POINTS:
            return None
        short = taps == 1 or 2 * prod(_numbers(self.result)) * depth <= flops
        return found if groups == 1 and short else None


def _numbers(values: object) -> tuple[int, ...]:
    """Return a sequence of ints; an empty one for any other value."""
    if not isinstance(values, tuple | list):
        return ()
    found = tuple(each for each in values if isinstance(each, int))
    return found if len(found) == len(values) else ()


def _parse(call: Operation, values: Mapping[str, Value], frozen: Mapping[str, Value]) -> _Convolution | None:
    """Parse a convolution that the routine ``convolution`` can run; ``None`` for any other operation."""
    if not isinstance(call, ContractionCall):
        return None
    arguments = convolution_arguments(call.target, call.arguments, call.attributes)
    if arguments is None or arguments.grad_output is not None or arguments.transposed:
        return None
    weight, bias = frozen.get(arguments.weight.name), None
    if weight is None:
        return None
    if arguments.bias is not None:
        bias = arguments.bias.name
        if bias not in frozen:
            return None
    source, result = values[arguments.input.name].type, call.results[0].type
    shapes = (*source.shape, *weight.type.shape, *result.shape)
    if len(result.shape) != 4 or not all(isinstance(size, int) and size > 0 for size in shapes):
        return None
    if {source.dtype, result.dtype} != {f32} or result.device.kind != "cpu":
        return None
    geometry = (arguments.padding, arguments.stride, arguments.dilation, arguments.groups)
    if any(True for _ in sizes_in(geometry)):
        # The weight is prepacked once for one geometry, and a symbolic one may differ from call to call.
        return None
    return _Convolution(arguments.input.name, weight, bias, source.shape, geometry, result.shape)


class _PrepackRewriter:
    """Rewrites a graph to prepacked convolutions, operation by operation."""

    def __init__(
        self,
        graph: LoopGraph,
        convolutions: Mapping[str, _Convolution],
        tiled: Mapping[str, TiledConvolution],
        context: PassContext,
    ) -> None:
        self.tiled = tiled
        self.graph = graph
        self.convolutions = convolutions
        self.context = context
        self.frozen_region = FrozenRegion(graph)
        self.layouts = ChannelsLastValues(graph, convolutions)
        self.readers: dict[str, list[Operation]] = {}
        for operation in graph.operations:
            for name in operation.reads:
                self.readers.setdefault(name, []).append(operation)
        self.remaining_bodies: dict[str, Expr] = {}
        self.fused: set[str] = set()

    def run(self) -> LoopGraph:
        """Return the rewritten graph, with the frozen region first."""
        for operation in self.frozen_region.others:
            if operation.name in self.convolutions:
                assert isinstance(operation, ContractionCall)
                self._convolution(operation, self.convolutions[operation.name])
            elif isinstance(operation, Pointwise | Reduction):
                if operation.name not in self.fused:
                    self.layouts.follow(self._current(operation))
            else:
                self.layouts.append(operation)
        return self.graph.with_operations((*self.frozen_region.region(), *self.layouts.operations))

    def _current(self, operation: Pointwise | Reduction) -> Pointwise | Reduction:
        body = self.remaining_bodies.get(operation.name)
        return operation if body is None else replace(operation, bodies=(body,))

    def _convolution(self, call: ContractionCall, convolution: _Convolution) -> None:
        value = call.results[0]
        tiled = self.tiled.get(call.name)
        affine, post_op = Affine(), "none"
        reader = self._only_reader(value)
        if reader is not None:
            x = next(load for load in loads(*reader.bodies) if load.buffer == value.name)
            body = self.remaining_bodies.get(reader.name, reader.bodies[0])
            channel_split = split(body, x, reader.axes[1].name, self.frozen_region.frozen)
            affine = channel_split.affine
            name = activation(channel_split.rest, x)
            if tiled is None and name is not None and self._can_fuse(reader):
                post_op, value = name, reader.results[0]
                self.fused.add(reader.name)
                self._note(reader, "fuse", reasons.LIBRARY_ACTIVATION)
            else:
                self.remaining_bodies[reader.name] = channel_split.rest
            if affine != Affine():
                self._note(reader, "fuse", reasons.LIBRARY_SCALE)
        scale, bias = self._per_channel(call, convolution, affine, reader)
        if tiled is not None:
            self._emit_tiled(call, tiled, convolution, scale, bias)
            return
        prepacked = self._prepacked(call, convolution, scale)
        self._emit(call, value, convolution, (prepacked, bias), post_op)

    def _only_reader(self, value: Value) -> Pointwise | None:
        """Return the pointwise loop that is a convolution's only reader and reads each element at its own index."""
        readers = self.readers.get(value.name, [])
        if len(readers) != 1 or not self.layouts.is_free(value):
            return None
        reader = readers[0]
        if not isinstance(reader, Pointwise) or len(reader.bodies) != 1 or reader.token:
            return None
        reads = [load for load in loads(*reader.bodies) if load.buffer == value.name]
        if tuple(axis.size for axis in reader.axes) != value.type.shape or len(reads) != 1:
            return None
        return reader if is_identity(reads[0].index, reader.axes) else None

    def _can_fuse(self, reader: Pointwise) -> bool:
        """Return whether the convolution can write the reader's result itself."""
        result = reader.results[0]
        return result.type.dtype == f32 and not result.type.layout.fixed and self.layouts.is_free(result)

    def _per_channel(
        self, call: ContractionCall, convolution: _Convolution, affine: Affine, reader: Pointwise | None
    ) -> tuple[str | None, str | None]:
        """Return the names of the scale in the frozen region and of the bias, where there are such."""
        name, channels = call.name, convolution.weight.type.shape[0]
        axis = Axis("i0", channels)
        substitution: dict[str, Size] = {} if reader is None else {reader.axes[1].name: symbol(axis.name)}
        vector = TensorType(f32, (channels,), contiguous((channels,)))
        scale = None if affine.scale is None else substitute_expr(affine.scale, substitution)
        shift = None if affine.shift is None else substitute_expr(affine.shift, substitution)
        bias = convolution.bias
        if bias is not None and (scale is not None or shift is not None):
            scaled_bias: Expr = Load(bias, (symbol(axis.name),), f32)
            scaled_bias = scaled_bias if scale is None else op("mul", scaled_bias, scale)
            shift = scaled_bias if shift is None else op("add", scaled_bias, shift)
        bodies = {f"{name}.scale": scale, f"{name}.bias": shift}
        results = {key: body for key, body in bodies.items() if body is not None}
        if results:
            values = tuple(Value(key, vector) for key in results)
            self.frozen_region.compute(
                Pointwise(results=values, axes=(axis,), bodies=tuple(results.values()), origin=call.origin)
            )
        if shift is not None:
            bias = self.frozen_region.result(f"{name}.bias", vector)
        return f"{name}.scale" if scale is not None else None, bias

    def _prepacked(self, call: ContractionCall, convolution: _Convolution, scale: str | None) -> str:
        """Return the name of the weight that the library prepacks in the frozen region."""
        weight = Value(
            f"{call.name}.weight",
            replace(convolution.weight.type, layout=contiguous(convolution.weight.type.shape)),
        )
        scales = None if scale is None else Ref(scale)
        arguments = (Ref(convolution.weight.name), scales, *convolution.geometry, convolution.shape)
        self.frozen_region.compute(
            Extern(results=(weight,), target="prepack_convolution", arguments=arguments, origin=call.origin)
        )
        return self.frozen_region.result(weight.name, weight.type)

    def _emit_tiled(
        self,
        call: ContractionCall,
        tiled: TiledConvolution,
        convolution: _Convolution,
        scale: str | None,
        bias: str | None,
    ) -> None:
        """Emit the loops that compute a convolution in tiles, and a copy in eager's layout where a reader needs it."""
        value, origin = call.results[0], call.origin
        prepack = tiled.prepack(f"{call.name}.weight", convolution.weight.name, scale, origin)
        self.frozen_region.compute(prepack)
        weight = self.frozen_region.result(prepack.name, prepack.results[0].type)
        x = convolution.x if tiled.gathered else self.layouts.in_channels_last(convolution.x)
        free = self.layouts.is_free(value)
        type_ = channels_last(value.type)
        result = replace(value, type=replace(type_, layout=replace(type_.layout, fixed=True)))
        if not free:
            result = replace(result, name=f"{value.name}.channels_last")
        total = result if bias is None else Value(f"{value.name}.sum", channels_last(value.type))
        self.layouts.append(tiled.sum(total, x, weight, origin))
        if bias is not None:
            self.layouts.append(biased(result, total.name, bias, origin))
        self.layouts.last.add(result.name)
        if not free:
            self.layouts.copy(value, result.name)
        self._note(call, "generate", reasons.LIBRARY_TILES)

    def _emit(
        self,
        call: ContractionCall,
        value: Value,
        convolution: _Convolution,
        prepacked: tuple[str, str | None],
        post_op: str,
    ) -> None:
        """Emit the call that computes ``value``, and a copy in eager's layout where a reader needs it."""
        x = self.layouts.in_channels_last(convolution.x)
        weight, bias = Ref(prepacked[0]), None if prepacked[1] is None else Ref(prepacked[1])
        free = self.layouts.is_free(value)
        type_ = channels_last(value.type)
        result = replace(value, type=replace(type_, layout=replace(type_.layout, fixed=True)))
        if not free:
            result = replace(result, name=f"{value.name}.channels_last")
        arguments = (Ref(x), weight, bias, *convolution.geometry, post_op)
        self.layouts.append(
            replace(
                call, results=(result,), target="convolution", arguments=arguments, layout_requirement="exact"
            )
        )
        self.layouts.last.add(result.name)
        if not free:
            self.layouts.copy(value, result.name)
        self._note(call, "call", reasons.LIBRARY_CONVOLUTION)

    def _note(self, operation: Operation, verdict: str, reason: Reason) -> None:
        self.context.decide(Decision("library", operation.name, verdict, reason))
