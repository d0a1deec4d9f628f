"""Convolutions of inference: weights packed once, results in channels-last, a batch norm folded into the weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from litz_ir.contraction import convolution_arguments
from litz_ir.dtypes import f32
from litz_ir.fused import Decision
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
from litz_scheduler.graph_facts import is_identity
from litz_scheduler.library.activations import activation
from litz_scheduler.library.channels_last_values import ChannelsLastValues, channels_last
from litz_scheduler.library.channelwise import Affine, split
from litz_scheduler.library.frozen_region import FrozenRegion
from litz_scheduler.options import SchedulerOptions


@dataclass(frozen=True, slots=True)
class PrepackConvolutions:
    """Let the host's ``convolution`` run those over images whose weight is held.

    It reads and gives channels-last, and wants the weight in a form of its own, made once by ``prepack_convolution``
    and kept. A reader that scales and shifts each channel by held values does so through the weight and the bias; an
    activation that the routine knows is left to it.
    """

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    name: str = "convolutions"
    ulp: int = 64

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        if not self.options.prepack_convolutions or not data.frozen:
            return data
        values = data.values()
        held = {name: values[name] for name in data.frozen}
        found = {o.name: parts for o in data.operations if (parts := _parts(o, values, held)) is not None}
        return _Change(data, found, context).run() if found else data


@dataclass(frozen=True, slots=True)
class _Parts:
    """A convolution: what it reads, the shape of its input, and how its window moves."""

    x: str
    weight: Value
    bias: str | None
    shape: tuple[Size, ...]
    geometry: tuple[Argument, ...]
    """Paddings, strides and dilations, two of each, and the number of groups."""


def _parts(call: Operation, values: Mapping[str, Value], held: Mapping[str, Value]) -> _Parts | None:
    """The parts of a convolution that the host's routine can run; None for any other operation."""
    if not isinstance(call, ContractionCall):
        return None
    given = convolution_arguments(call.target, call.arguments, call.attributes)
    if given is None or given.grad_output is not None or given.transposed or given.weight.name not in held:
        return None
    if given.bias is not None and given.bias.name not in held:
        return None
    weight, source, result = held[given.weight.name], values[given.input.name].type, call.results[0].type
    shapes = (*source.shape, *weight.type.shape, *result.shape)
    if len(result.shape) != 4 or not all(isinstance(size, int) and size > 0 for size in shapes):
        return None
    if {source.dtype, result.dtype} != {f32} or result.device.kind != "cpu":
        return None
    geometry = (given.padding, given.stride, given.dilation, given.groups)
    if any(True for _ in sizes_in(geometry)):
        # A weight is packed once for all calls, and these differ from call to call.
        return None
    bias = given.bias.name if given.bias is not None else None
    return _Parts(given.input.name, weight, bias, source.shape, geometry)


class _Change:
    """Emits the graph anew, operation by operation."""

    def __init__(self, graph: LoopGraph, found: Mapping[str, _Parts], context: PassContext) -> None:
        self.graph = graph
        self.found = found
        self.context = context
        self.keep = FrozenRegion(graph)
        self.layouts = ChannelsLastValues(graph, found)
        self.readers: dict[str, list[Operation]] = {}
        for operation in graph.operations:
            for name in operation.reads:
                self.readers.setdefault(name, []).append(operation)
        self.rest: dict[str, Expr] = {}
        self.done: set[str] = set()

    def run(self) -> LoopGraph:
        """The graph, with what it keeps in front."""
        for operation in self.keep.others:
            if operation.name in self.found:
                assert isinstance(operation, ContractionCall)
                self._convolution(operation, self.found[operation.name])
            elif isinstance(operation, Pointwise | Reduction):
                if operation.name not in self.done:
                    self.layouts.follow(self._current(operation))
            else:
                self.layouts.append(operation)
        return self.graph.with_operations((*self.keep.region(), *self.layouts.operations))

    def _current(self, operation: Pointwise | Reduction) -> Pointwise | Reduction:
        body = self.rest.get(operation.name)
        return operation if body is None else replace(operation, bodies=(body,))

    def _convolution(self, call: ContractionCall, parts: _Parts) -> None:
        value = call.results[0]
        affine, applied = Affine(), "none"
        reader = self._only_reader(value)
        if reader is not None:
            image = next(load for load in loads(*reader.bodies) if load.buffer == value.name)
            body = self.rest.get(reader.name, reader.bodies[0])
            divided = split(body, image, reader.axes[1].name, self.keep.lasting)
            affine = divided.affine
            known = activation(divided.rest, image)
            if known is not None and self._takes_over(reader):
                applied, value = known, reader.results[0]
                self.done.add(reader.name)
                self._note(reader, "fold", "library.activation")
            else:
                self.rest[reader.name] = divided.rest
            if affine != Affine():
                self._note(reader, "fold", "library.scale")
        self._emit(call, value, parts, self._kept(call, parts, affine, reader), applied)

    def _only_reader(self, value: Value) -> Pointwise | None:
        """The loop that alone reads a convolution's result, each element at its own point, if there is one."""
        readers = self.readers.get(value.name, [])
        if len(readers) != 1 or not self.layouts.is_free(value):
            return None
        reader = readers[0]
        if not isinstance(reader, Pointwise) or len(reader.bodies) != 1 or reader.token:
            return None
        images = [load for load in loads(*reader.bodies) if load.buffer == value.name]
        if tuple(axis.size for axis in reader.axes) != value.type.shape or len(images) != 1:
            return None
        return reader if is_identity(images[0].index, reader.axes) else None

    def _takes_over(self, reader: Pointwise) -> bool:
        """True when the convolution may give the reader's result itself."""
        result = reader.results[0]
        return result.type.dtype == f32 and not result.type.layout.fixed and self.layouts.is_free(result)

    def _kept(
        self, call: ContractionCall, parts: _Parts, affine: Affine, reader: Pointwise | None
    ) -> tuple[str, str | None]:
        """The names of the packed weight and of the bias; they are computed in the region that is kept."""
        name, channels = call.name, parts.weight.type.shape[0]
        axis = Axis("i0", channels)
        place: dict[str, Size] = {} if reader is None else {reader.axes[1].name: symbol(axis.name)}
        vector = TensorType(f32, (channels,), contiguous((channels,)))
        factor = None if affine.scale is None else substitute_expr(affine.scale, place)
        addend = None if affine.shift is None else substitute_expr(affine.shift, place)
        bias = parts.bias
        if bias is not None and (factor is not None or addend is not None):
            own: Expr = Load(bias, (symbol(axis.name),), f32)
            own = own if factor is None else op("mul", own, factor)
            addend = own if addend is None else op("add", own, addend)
        made = {f"{name}.factor": factor, f"{name}.bias": addend}
        results = {key: body for key, body in made.items() if body is not None}
        if results:
            values = tuple(Value(key, vector) for key in results)
            self.keep.compute(
                Pointwise(results=values, axes=(axis,), bodies=tuple(results.values()), origin=call.origin)
            )
        if addend is not None:
            bias = self.keep.result(f"{name}.bias", vector)
        packed = Value(
            f"{name}.weight", replace(parts.weight.type, layout=contiguous(parts.weight.type.shape))
        )
        scale = Ref(f"{name}.factor") if factor is not None else None
        arguments = (Ref(parts.weight.name), scale, *parts.geometry, parts.shape)
        self.keep.compute(
            Extern(results=(packed,), target="prepack_convolution", arguments=arguments, origin=call.origin)
        )
        return self.keep.result(packed.name, packed.type), bias

    def _emit(
        self, call: ContractionCall, value: Value, parts: _Parts, kept: tuple[str, str | None], applied: str
    ) -> None:
        """The call that computes ``value``, and a copy where somebody needs it as eager has it."""
        x = self.layouts.in_channels_last(parts.x)
        weight, bias = Ref(kept[0]), None if kept[1] is None else Ref(kept[1])
        free = self.layouts.is_free(value)
        type_ = channels_last(value.type)
        made = replace(value, type=replace(type_, layout=replace(type_.layout, fixed=True)))
        if not free:
            made = replace(made, name=f"{value.name}.channels_last")
        arguments = (Ref(x), weight, bias, *parts.geometry, applied)
        self.layouts.append(
            replace(
                call, results=(made,), target="convolution", arguments=arguments, layout_requirement="exact"
            )
        )
        self.layouts.last.add(made.name)
        if not free:
            self.layouts.copy(value, made.name)
        self._note(call, "call", "library.convolution")

    def _note(self, operation: Operation, verdict: str, reason: str) -> None:
        self.context.decide(Decision("library", operation.name, verdict, reason))
