"""Images of convolutions in channels-last, where a vote over the graph says that this moves fewer bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from litz_ir.fused import Decision
from litz_ir.loops import (
    Axis,
    LoopGraph,
    Operation,
    Pointwise,
    Reduction,
    TensorType,
    Value,
    contiguous,
    rename_reads,
)
from litz_ir.passes import PassContext
from litz_ir.scalar import Load
from litz_ir.symbols import symbol
from litz_scheduler.library.channels_last_values import channels_last
from litz_scheduler.library.convolution_layouts import (
    ConvolutionLayoutCost,
    convolution_layout_cost,
    is_both_layouts,
    is_channels_last,
)
from litz_scheduler.library.layout_propagation import ChannelsLastChoice, LayoutPropagation
from litz_scheduler.options import SchedulerOptions


@dataclass(frozen=True, slots=True)
class PropagateChannelsLast:
    """Let convolutions take their images in channels-last, and loops make them so, where the vote says it."""

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    name: str = "images"
    ulp: int = 64

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        if self.options.channels_last == "eager":
            return data
        values = data.values()
        calls = {
            operation.name: parts
            for operation in data.operations
            if (parts := convolution_layout_cost(operation, values, self.options)) is not None
            and not _is_settled(parts, values)
        }
        if not calls:
            return data
        chosen = LayoutPropagation(data, calls).chosen()
        if not chosen.calls:
            return data
        for name, parts in calls.items():
            if name in chosen.calls:
                saved = parts.eager_cost - parts.channels_last_cost
                context.decide(Decision("library", name, "convert", "library.channels_last", saved))
        return _Change(data, calls, chosen).run()


def _is_settled(parts: ConvolutionLayoutCost, values: Mapping[str, Value]) -> bool:
    """True for a call whose images come, and are promised, in channels-last already, or in both layouts at once."""
    types = [values[name].type for name in parts.reads]
    types += [] if parts.output is None else [parts.output.type]
    return all(is_channels_last(type_) or is_both_layouts(type_) for type_ in types)


class _Change:
    """Emits the graph anew, operation by operation."""

    def __init__(
        self, graph: LoopGraph, calls: Mapping[str, ConvolutionLayoutCost], chosen: ChannelsLastChoice
    ) -> None:
        self._graph = graph
        self._calls = calls
        self._chosen = chosen
        self._eager = {name: value.type for name, value in graph.values().items()}
        self._types = dict(self._eager)
        self._copies: dict[str, str] = {}
        self._operations: list[Operation] = []

    def run(self) -> LoopGraph:
        """The graph with calls, loops and the copies between them."""
        for operation in self._graph.operations:
            if operation.name in self._calls:
                self._call(self._calls[operation.name])
            elif isinstance(operation, Pointwise | Reduction):
                self._append(replace(operation, results=tuple(map(self._laid_out, operation.results))))
            else:
                self._append(operation)
        return self._graph.with_operations(tuple(self._operations))

    def _laid_out(self, value: Value) -> Value:
        return (
            replace(value, type=channels_last(value.type))
            if value.name in self._chosen.activations
            else value
        )

    def _append(self, operation: Operation) -> None:
        self._types.update((value.name, value.type) for value in operation.results)
        self._operations.append(operation)

    def _call(self, parts: ConvolutionLayoutCost) -> None:
        """The call over images in one layout, and copies of what others want in another."""
        wanted = parts.call.name in self._chosen.calls
        read = {name: self._in_layout(name, wanted) for name in parts.reads}
        call = rename_reads(parts.call, read)
        if not wanted:
            self._append(call)
            return
        given: dict[str, Value] = {}
        left: list[Value] = []
        for value in (parts.output, parts.weight):
            if value is None or is_channels_last(value.type) or is_both_layouts(value.type):
                continue
            made = replace(value, type=_fixed(channels_last(value.type)))
            if value.name not in self._chosen.activations:
                made = replace(made, name=f"{value.name}.channels_last")
                left.append(value)
            given[value.name] = made
        self._append(replace(call, results=tuple(given.get(value.name, value) for value in call.results)))
        for value in left:
            self._copy(value, given[value.name].name)

    def _in_layout(self, name: str, last: bool) -> str:
        """The name of an image in channels-last, or as eager has it: itself, or a copy."""
        type_ = self._types[name]
        if is_both_layouts(type_) or is_channels_last(type_) == last:
            return name
        found = self._copies.get(name)
        if found is None:
            found = self._copies[name] = f"{name}.channels_last" if last else f"{name}.eager"
            copied = channels_last(type_) if last else self._as_eager(name)
            self._copy(Value(found, _free(copied)), name)
        return found

    def _as_eager(self, name: str) -> TensorType:
        """The type of an image as eager has it; one that comes from outside in channels-last was saved so."""
        type_ = self._eager[name]
        return replace(type_, layout=contiguous(type_.shape)) if is_channels_last(type_) else type_

    def _copy(self, value: Value, source: str) -> None:
        axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(value.type.shape))
        body = Load(source, tuple(symbol(axis.name) for axis in axes), value.type.dtype)
        self._append(Pointwise(results=(value,), axes=axes, bodies=(body,)))


def _fixed(type_: TensorType) -> TensorType:
    return replace(type_, layout=replace(type_.layout, fixed=True))


def _free(type_: TensorType) -> TensorType:
    return replace(type_, layout=replace(type_.layout, offset=0, fixed=False))
