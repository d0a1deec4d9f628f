"""Conversion of convolutions to channels-last (NHWC) where layout propagation finds that this moves fewer bytes."""

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
from litz_scheduler import reasons
from litz_scheduler.library.layout.channels_last_values import channels_last
from litz_scheduler.library.layout.convolution_layouts import (
    ConvolutionLayoutCost,
    convolution_layout_cost,
    is_both_layouts,
    is_channels_last,
)
from litz_scheduler.library.layout.layout_propagation import ChannelsLastChoice, LayoutPropagation
from litz_scheduler.options import SchedulerOptions


@dataclass(frozen=True, slots=True)
class PropagateChannelsLast:
    """Give convolutions and the loops around them channels-last activations where that moves fewer bytes.

    The layouts minimise the bytes moved over the whole graph (:class:`LayoutPropagation`). Copies are inserted where
    a convolution and a reader or writer of its tensors have different layouts.
    """

    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    """``channels_last`` turns the pass off."""
    name: str = "propagate-channels-last"
    """The name of the pass."""
    ulp: int = 64
    """The bound on changed results, in ULP."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        if not self.options.channels_last:
            return data
        values = data.values()
        calls = {
            operation.name: costs
            for operation in data.operations
            if (costs := convolution_layout_cost(operation, values, self.options)) is not None
            and not _is_settled(costs, values)
        }
        if not calls:
            return data
        choice = LayoutPropagation(data, calls).chosen()
        if not choice.calls:
            return data
        for name, costs in calls.items():
            if name in choice.calls:
                saved = costs.eager_cost - costs.channels_last_cost
                context.decide(Decision("library", name, "convert", reasons.LIBRARY_CHANNELS_LAST, saved))
        return _ChannelsLastRewriter(data, calls, choice).run()


def _is_settled(costs: ConvolutionLayoutCost, values: Mapping[str, Value]) -> bool:
    """Return whether activations of a call are channels-last already, or the same memory in both layouts."""
    types = [values[name].type for name in costs.reads]
    types += [] if costs.output is None else [costs.output.type]
    return all(is_channels_last(type_) or is_both_layouts(type_) for type_ in types)


class _ChannelsLastRewriter:
    """Rewrites a graph to the chosen layouts, operation by operation."""

    def __init__(
        self, graph: LoopGraph, calls: Mapping[str, ConvolutionLayoutCost], choice: ChannelsLastChoice
    ) -> None:
        self._graph = graph
        self._calls = calls
        self._choice = choice
        self._eager = {name: value.type for name, value in graph.values().items()}
        self._types = dict(self._eager)
        self._copies: dict[str, str] = {}
        self._operations: list[Operation] = []

    def run(self) -> LoopGraph:
        """Return the graph with the chosen layouts and the copies between them."""
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
            if value.name in self._choice.activations
            else value
        )

    def _append(self, operation: Operation) -> None:
        self._types.update((value.name, value.type) for value in operation.results)
        self._operations.append(operation)

    def _call(self, costs: ConvolutionLayoutCost) -> None:
        """Emit a call with its activations in one layout, and copies of results that readers need in the other."""
        to_channels_last = costs.call.name in self._choice.calls
        inputs = {name: self._in_layout(name, to_channels_last) for name in costs.reads}
        call = rename_reads(costs.call, inputs)
        if not to_channels_last:
            self._append(call)
            return
        converted: dict[str, Value] = {}
        copied_back: list[Value] = []
        for value in (costs.output, costs.weight):
            if value is None or is_channels_last(value.type) or is_both_layouts(value.type):
                continue
            result = replace(value, type=_fixed(channels_last(value.type)))
            if value.name not in self._choice.activations:
                result = replace(result, name=f"{value.name}.channels_last")
                copied_back.append(value)
            converted[value.name] = result
        self._append(replace(call, results=tuple(converted.get(value.name, value) for value in call.results)))
        for value in copied_back:
            self._copy(value, converted[value.name].name)

    def _in_layout(self, name: str, to_channels_last: bool) -> str:
        """Return the name of an activation in channels-last or in eager's layout: its own, or that of a copy."""
        type_ = self._types[name]
        if is_both_layouts(type_) or is_channels_last(type_) == to_channels_last:
            return name
        copy = self._copies.get(name)
        if copy is None:
            copy = self._copies[name] = f"{name}.channels_last" if to_channels_last else f"{name}.eager"
            copy_type = channels_last(type_) if to_channels_last else self._as_eager(name)
            self._copy(Value(copy, _free(copy_type)), name)
        return copy

    def _as_eager(self, name: str) -> TensorType:
        """Return the type of an activation with eager's layout.

        An input in channels-last is a tensor that the forward graph saved so; eager's is contiguous.
        """
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
