"""Layout propagation: the choice of channels-last activations that minimises the bytes moved by a graph."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from litz_ir.loops import LoopGraph, Operation, Pointwise, Reduction, Value
from litz_scheduler.analysis.cost import static_bytes
from litz_scheduler.analysis.graph_facts import output_names
from litz_scheduler.library.layout.convolution_layouts import (
    ConvolutionLayoutCost,
    has_few_channels,
    is_activation,
    is_both_layouts,
    is_channels_last,
)
from litz_scheduler.library.layout.minimum_cut import INFINITE_COST, MinimumCut

_CONVERSION_COST = 3
"""Bytes charged for each byte of an activation that is copied to the other layout: reads or writes are strided."""

_FEW_CHANNELS_CONVERSION_COST = 9
"""The same for activations of few channels, whose copy fills few lanes of each vector register."""

_MIXED_LAYOUT_COST = 2
"""The same for an activation that a loop reads in another layout than that of its results."""


@dataclass(frozen=True, slots=True)
class ChannelsLastChoice:
    """The names of calls and activations that become channels-last.

    The name of a call is that of its first result, which need not become channels-last with it.
    """

    calls: frozenset[str]
    """Calls that run in channels-last."""
    activations: frozenset[str]
    """Activations that are stored in channels-last."""


class LayoutPropagation:
    """A minimum cut between the activations of a graph in eager's layout and those in channels-last.

    Nodes are activations and calls; an edge costs the bytes that different layouts of its ends move. A call reads and
    writes activations of one layout.
    """

    def __init__(self, graph: LoopGraph, calls: Mapping[str, ConvolutionLayoutCost]) -> None:
        self._graph = graph
        self._calls = calls
        self._values = graph.values()
        self.free = self._free()
        """The activations of any layout: loops or ``calls`` write them, and nothing else reads them."""
        self._cut = MinimumCut()
        self._settled: set[str] = set()

    def chosen(self) -> ChannelsLastChoice:
        """Return the calls and free activations that the minimum cut puts in channels-last."""
        for operation in self._graph.operations:
            if operation.name in self._calls:
                self._call(self._calls[operation.name])
            elif isinstance(operation, Pointwise | Reduction):
                self._loop(operation)
        found = self._cut.found()
        calls = frozenset(name for name, costs in self._calls.items() if self._call_node(costs) in found)
        return ChannelsLastChoice(calls, frozenset(name for name in self.free if name in found))

    def _free(self) -> frozenset[str]:
        fixed: Collection[str] = output_names(self._graph) - set(self._graph.saved)
        read = {
            name
            for operation in self._graph.operations
            if not isinstance(operation, Pointwise | Reduction) and operation.name not in self._calls
            for name in operation.reads
        }
        results = (
            value
            for operation in self._graph.operations
            for value in self._layout_results(operation)
            if value.replaces is None and is_activation(value.type) and not is_channels_last(value.type)
        )
        return frozenset(value.name for value in results) - read - set(fixed)

    def _layout_results(self, operation: Operation) -> tuple[Value, ...]:
        """Return the results of an operation that may have either layout."""
        if operation.name in self._calls:
            output = self._calls[operation.name].output
            return () if output is None else (output,)
        return operation.results if isinstance(operation, Pointwise | Reduction) else ()

    def _node(self, name: str) -> str | None:
        """Return the node of an activation; ``None`` where both layouts are the same memory.

        An activation that is not free is tied to the side of its layout.
        """
        type_ = self._values[name].type
        if not is_activation(type_) or is_both_layouts(type_):
            return None
        if name not in self.free and name not in self._settled:
            self._settled.add(name)
            settle = self._cut.inside if is_channels_last(type_) else self._cut.outside
            settle(name, INFINITE_COST)
        return name

    def _call_node(self, costs: ConvolutionLayoutCost) -> str:
        """Return the node of a call: that of its result where this has the layout of the call."""
        name, output = costs.call.name, costs.output
        return name if output is None or output.name in self.free else f"<{name}>"

    def _call(self, costs: ConvolutionLayoutCost) -> None:
        node = self._call_node(costs)
        self._cut.inside(node, costs.eager_cost)
        self._cut.outside(node, costs.channels_last_cost)
        results = () if costs.output is None else (costs.output.name,)
        for name in (*costs.reads, *results):
            few = has_few_channels(self._values[name].type)
            self._same_layout(node, name, _FEW_CHANNELS_CONVERSION_COST if few else _CONVERSION_COST)

    def _same_layout(self, node: str, activation: str, cost_per_byte: int) -> None:
        other = self._node(activation)
        if other is not None:
            self._cut.same_partition(node, other, cost_per_byte * self._bytes(activation))

    def _loop(self, operation: Pointwise | Reduction) -> None:
        written = [node for value in operation.results if (node := self._node(value.name)) is not None]
        read = [node for name in operation.reads if (node := self._node(name)) is not None]
        if not written and read and isinstance(operation, Pointwise):
            # Its results are no activations; its loop order is most likely that of eager's layout.
            for name in read:
                self._cut.outside(name, _MIXED_LAYOUT_COST * self._bytes(name))
            return
        for name in (*written, *read)[1:]:
            first = (*written, *read)[0]
            # A loop that casts from one layout to the other runs along the side of more bytes.
            strided = min(first, name, key=self._bytes) if isinstance(operation, Pointwise) else name
            self._cut.same_partition(first, name, _MIXED_LAYOUT_COST * self._bytes(strided))

    def _bytes(self, name: str) -> int:
        return static_bytes(self._values[name].type)
