"""Which images are in channels-last: what convolutions gain by it against what is turned where two layouts meet."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from litz_ir.loops import LoopGraph, Operation, Pointwise, Reduction, Value
from litz_scheduler.graph_facts import output_names
from litz_scheduler.library.convolution_layouts import (
    ConvolutionLayoutCost,
    activation_bytes,
    has_few_channels,
    is_activation,
    is_both_layouts,
    is_channels_last,
)
from litz_scheduler.library.minimum_cut import INFINITE_COST, MinimumCut

CONVERSION_COST = 3
"""Bytes moved for each byte of an image that is copied into the other layout: neighbours that are read are not
neighbours where they are written."""

FEW_CHANNELS_CONVERSION_COST = 9
"""The same for images of few channels, which are copied with a few lanes of each register."""

MIXED_LAYOUT_COST = 2
"""The same for an image that a loop reads in another layout than that of what it writes."""


@dataclass(frozen=True, slots=True)
class ChannelsLastChoice:
    """What is in channels-last: calls, and free images, by name. A call may bear the name of an image that is not."""

    calls: frozenset[str]
    activations: frozenset[str]


class LayoutPropagation:
    """The images of a graph and what it costs to lay them out apart from one another.

    Those that loops or ``calls`` make, and that only they read, are ``free``: they are laid out together with what
    they are made from where that moves fewer bytes. A call's results have the layout of what it reads.
    """

    def __init__(self, graph: LoopGraph, calls: Mapping[str, ConvolutionLayoutCost]) -> None:
        self._graph = graph
        self._calls = calls
        self._values = graph.values()
        self.free = self._free()
        self._cut = MinimumCut()
        self._settled: set[str] = set()

    def chosen(self) -> ChannelsLastChoice:
        """The calls and the free images that are best in channels-last."""
        for operation in self._graph.operations:
            if operation.name in self._calls:
                self._call(self._calls[operation.name])
            elif isinstance(operation, Pointwise | Reduction):
                self._loop(operation)
        found = self._cut.found()
        calls = frozenset(name for name, parts in self._calls.items() if self._side(parts) in found)
        return ChannelsLastChoice(calls, frozenset(name for name in self.free if name in found))

    def _free(self) -> frozenset[str]:
        bound: Collection[str] = output_names(self._graph) - set(self._graph.saved)
        read = {
            name
            for operation in self._graph.operations
            if not isinstance(operation, Pointwise | Reduction) and operation.name not in self._calls
            for name in operation.reads
        }
        made = (
            value
            for operation in self._graph.operations
            for value in self._made(operation)
            if value.replaces is None and is_activation(value.type) and not is_channels_last(value.type)
        )
        return frozenset(value.name for value in made) - read - set(bound)

    def _made(self, operation: Operation) -> tuple[Value, ...]:
        """The images that an operation may lay out."""
        if operation.name in self._calls:
            image = self._calls[operation.name].output
            return () if image is None else (image,)
        return operation.results if isinstance(operation, Pointwise | Reduction) else ()

    def _node(self, name: str) -> str | None:
        """An image whose layout matters, and on whose side it is where that is settled."""
        type_ = self._values[name].type
        if not is_activation(type_) or is_both_layouts(type_):
            return None
        if name not in self.free and name not in self._settled:
            self._settled.add(name)
            settle = self._cut.inside if is_channels_last(type_) else self._cut.outside
            settle(name, INFINITE_COST)
        return name

    def _side(self, parts: ConvolutionLayoutCost) -> str:
        """The node of a call: that of its image, where this is laid out as the call gives it."""
        name, image = parts.call.name, parts.output
        return name if image is None or image.name in self.free else f"<{name}>"

    def _call(self, parts: ConvolutionLayoutCost) -> None:
        node = self._side(parts)
        self._cut.inside(node, parts.eager_cost)
        self._cut.outside(node, parts.channels_last_cost)
        given = () if parts.output is None else (parts.output.name,)
        for name in (*parts.reads, *given):
            few = has_few_channels(self._values[name].type)
            self._apart(node, name, FEW_CHANNELS_CONVERSION_COST if few else CONVERSION_COST)

    def _apart(self, node: str, image: str, price: int) -> None:
        other = self._node(image)
        if other is not None:
            self._cut.same_partition(node, other, price * activation_bytes(self._values[image].type))

    def _loop(self, operation: Pointwise | Reduction) -> None:
        made = [node for value in operation.results if (node := self._node(value.name)) is not None]
        read = [node for name in operation.reads if (node := self._node(name)) is not None]
        if not made and read and isinstance(operation, Pointwise):
            # It walks the image in some order of its own: that of eager, most likely.
            for name in read:
                self._cut.outside(name, MIXED_LAYOUT_COST * activation_bytes(self._values[name].type))
            return
        for name in (*made, *read)[1:]:
            self._apart((*made, *read)[0], name, MIXED_LAYOUT_COST)
