"""Values of a graph that can be stored in channels-last, and copies of those that cannot."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from litz_ir.loops import Axis, LoopGraph, Operation, Pointwise, Reduction, Scan, TensorType, Value
from litz_ir.scalar import Load
from litz_ir.symbols import Size, mul, symbol
from litz_scheduler.analysis.graph_facts import output_names


def channels_last(type_: TensorType) -> TensorType:
    """Return a tensor type of shape (batch, channels, ...) with channels-last strides: channels are contiguous."""
    _, channels, *rest = type_.shape
    strides: list[Size] = []
    stride: Size = channels
    for size in reversed(rest):
        strides.insert(0, stride)
        stride = mul(stride, size)
    return replace(type_, layout=replace(type_.layout, strides=(stride, 1, *strides)))


class ChannelsLastValues:
    """The operations of a graph as they are emitted, with layouts of earlier results that may still change.

    ``convolutions`` names the calls that take their arguments in channels-last.
    """

    def __init__(self, graph: LoopGraph, convolutions: Collection[str]) -> None:
        self.last: set[str] = set()
        """The values in channels-last."""
        self.operations: list[Operation] = []
        """The operations emitted so far."""
        self._types = {name: value.type for name, value in graph.values().items()}
        self._positions: dict[str, int] = {}
        self._copies: dict[str, str] = {}
        self._fixed = output_names(graph)
        for operation in graph.operations:
            if not isinstance(operation, Pointwise | Reduction | Scan) and operation.name not in convolutions:
                self._fixed.update(operation.reads)

    def is_free(self, value: Value) -> bool:
        """Return whether only loops and ``convolutions`` read a value, so that it may have any layout."""
        return value.name not in self._fixed and value.replaces is None

    def append(self, operation: Operation) -> None:
        """Emit an operation."""
        for value in operation.results:
            self._positions[value.name] = len(self.operations)
            self._types[value.name] = value.type
        self.operations.append(operation)

    def follow(self, operation: Pointwise | Reduction) -> None:
        """Emit a loop; its results of rank 4 become channels-last where an input is and their layout is free."""
        self.append(operation)
        ranks = {len(value.type.shape) for value in operation.results}
        if ranks == {4} and not self.last.isdisjoint(operation.reads):
            for value in operation.results:
                self.lay_out(value.name)

    def lay_out(self, name: str) -> bool:
        """Store a value in channels-last from the start; false where a reader or the caller needs its layout."""
        if name in self.last:
            return True
        position = self._positions.get(name)
        if position is None or self._types[name].layout.fixed:
            return False
        producer = self.operations[position]
        if not isinstance(producer, Pointwise | Reduction) or not all(map(self.is_free, producer.results)):
            return False
        results = tuple(
            replace(value, type=channels_last(value.type)) if value.name == name else value
            for value in producer.results
        )
        self.operations[position] = replace(producer, results=results)
        self._types[name] = channels_last(self._types[name])
        self.last.add(name)
        return True

    def in_channels_last(self, name: str) -> str:
        """Return the name of a value in channels-last: its own, or that of a copy, which is emitted once."""
        if self.lay_out(name):
            return name
        copy = self._copies.get(name)
        if copy is None:
            copy = self._copies[name] = f"{name}.channels_last"
            type_ = channels_last(self._types[name])
            value = Value(copy, replace(type_, layout=replace(type_.layout, offset=0, fixed=False)))
            self.copy(value, name)
            self.last.add(copy)
        return copy

    def copy(self, value: Value, source: str) -> None:
        """Emit a loop that copies ``source`` to ``value``, of the same shape."""
        axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(value.type.shape))
        body = Load(source, tuple(symbol(axis.name) for axis in axes), value.type.dtype)
        self.append(Pointwise(results=(value,), axes=axes, bodies=(body,)))
