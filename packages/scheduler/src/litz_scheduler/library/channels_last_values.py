"""Channels-last: which values can be laid out so, and copies of those that cannot."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from litz_ir.loops import Axis, LoopGraph, Operation, Pointwise, Reduction, Scan, TensorType, Value
from litz_ir.scalar import Load
from litz_ir.symbols import Size, mul, symbol
from litz_scheduler.graph_facts import output_names


def channels_last(type_: TensorType) -> TensorType:
    """The type of a batch of images with the channels of a point next to each other."""
    _, channels, *rest = type_.shape
    strides: list[Size] = []
    step: Size = channels
    for size in reversed(rest):
        strides.insert(0, step)
        step = mul(step, size)
    return replace(type_, layout=replace(type_.layout, strides=(step, 1, *strides)))


class ChannelsLastValues:
    """The operations of a graph as they are emitted, some of whose results are then laid out anew.

    ``flexible`` names the calls that take their arguments in channels-last; ``last`` the values that are laid out so.
    """

    def __init__(self, graph: LoopGraph, flexible: Collection[str]) -> None:
        self.last: set[str] = set()
        self.operations: list[Operation] = []
        self._types = {name: value.type for name, value in graph.values().items()}
        self._makers: dict[str, int] = {}
        self._copies: dict[str, str] = {}
        self._bound = output_names(graph)
        for operation in graph.operations:
            if not isinstance(operation, Pointwise | Reduction | Scan) and operation.name not in flexible:
                self._bound.update(operation.reads)

    def is_free(self, value: Value) -> bool:
        """True when only loops and flexible calls read a value, so that it may have any layout."""
        return value.name not in self._bound and value.replaces is None

    def append(self, operation: Operation) -> None:
        """Emit an operation."""
        for value in operation.results:
            self._makers[value.name] = len(self.operations)
            self._types[value.name] = value.type
        self.operations.append(operation)

    def follow(self, operation: Pointwise | Reduction) -> None:
        """Emit a loop: images made from images in channels-last are in channels-last, where nothing forbids it."""
        self.append(operation)
        ranks = {len(value.type.shape) for value in operation.results}
        if ranks == {4} and not self.last.isdisjoint(operation.reads):
            for value in operation.results:
                self.lay_out(value.name)

    def lay_out(self, name: str) -> bool:
        """Let a value be in channels-last from where it is computed on; false where someone needs it as it is."""
        if name in self.last:
            return True
        position = self._makers.get(name)
        if position is None or self._types[name].layout.fixed:
            return False
        maker = self.operations[position]
        if not isinstance(maker, Pointwise | Reduction) or not all(map(self.is_free, maker.results)):
            return False
        results = tuple(
            replace(value, type=channels_last(value.type)) if value.name == name else value
            for value in maker.results
        )
        self.operations[position] = replace(maker, results=results)
        self._types[name] = channels_last(self._types[name])
        self.last.add(name)
        return True

    def in_channels_last(self, name: str) -> str:
        """The name of the same elements in channels-last: the value itself, or a copy."""
        if self.lay_out(name):
            return name
        found = self._copies.get(name)
        if found is None:
            found = self._copies[name] = f"{name}.channels_last"
            type_ = channels_last(self._types[name])
            made = Value(found, replace(type_, layout=replace(type_.layout, offset=0, fixed=False)))
            self.copy(made, name)
            self.last.add(found)
        return found

    def copy(self, value: Value, source: str) -> None:
        """Emit a copy of ``source``."""
        axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(value.type.shape))
        body = Load(source, tuple(symbol(axis.name) for axis in axes), value.type.dtype)
        self.append(Pointwise(results=(value,), axes=axes, bodies=(body,)))
