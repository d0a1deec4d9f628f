"""The placement of each value of a plan, as its steps are built."""

from __future__ import annotations

from collections import Counter

from litz_ir.errors import ScheduleError
from litz_ir.loops import LoopGraph, Scatter, TensorType, Value, View, index_reads
from litz_ir.plan import Placement
from litz_ir.scalar import loads
from litz_scheduler.analysis.graph_facts import alias_type, as_promised, dense_type, output_names
from litz_scheduler.memory.slots import UNPLACED


class ValuePlacements:
    """Placements by value name. Values that kernels write first are ``UNPLACED`` until memory is planned."""

    def __init__(self, graph: LoopGraph) -> None:
        self.symbols = graph.symbols
        self.placements = {
            value.name: Placement(value.type)
            for value in (*graph.inputs, *graph.constants)
            if isinstance(value, Value)
        }
        self._returned = output_names(graph)
        self._readers = Counter(name for operation in graph.operations for name in operation.reads)
        self._owned: set[str] = set()
        self._elsewhere: set[str] = set()

    def type(self, name: str) -> TensorType:
        """Return the type of a value with the layout of its memory.

        Raises ``ScheduleError`` for a value that is not defined yet.
        """
        placement = self.placements.get(name)
        if placement is None:
            raise ScheduleError(
                "a value is read before anything defines it", node=name, hint="verify the fused graph"
            )
        return placement.type

    def memory(self, name: str) -> str:
        """Return the oldest buffer with the same elements at the same addresses.

        A kernel that writes a new version and reads the old one has one parameter for both.
        """
        while True:
            placement = self.placements[name]
            if placement.base is None or name in self._elsewhere:
                return name
            base, own = self.placements[placement.base].type, placement.type
            if base.layout != own.layout or base.dtype != own.dtype:
                return name
            name = placement.base

    def written(self, value: Value) -> None:
        """Note that a kernel writes ``value``, in memory of its own or in that of the version it replaces."""
        if value.replaces is not None:
            self.placements[value.name] = Placement(self.type(value.replaces), base=value.replaces)
        elif value.name not in self.placements:
            self.placements[value.name] = Placement(dense_type(value.type), storage=UNPLACED)
            self._owned.add(value.name)

    def returned(self, value: Value, base: str | None = None) -> None:
        """Note that a call or region returns ``value``.

        ``base`` is the argument that it is the next version of, or a view of at any offset.
        """
        self.placements[value.name] = Placement(value.type, base=base)
        if base is not None and value.replaces != base:
            self._elsewhere.add(value.name)

    def alias(self, view: View) -> bool:
        """Place a view in its base's memory; return False where strides cannot express it in the promised layout."""
        type_ = alias_type(view, self.type(view.base), self.symbols)
        if type_ is None or not as_promised(view.results[0].type, type_.layout):
            return False
        self.placements[view.name] = Placement(type_, base=view.base)
        return True

    def reuse_base(self, scatter: Scatter) -> bool:
        """Place a scatter in its base's memory; return False where that is not allowed.

        It is allowed when a kernel of this plan wrote the base, the scatter is its only reader, it is not returned,
        and neither the body nor the index loads it.
        """
        name = scatter.base
        if name not in self._owned or name in self._returned or self._readers[name] != 1:
            return False
        if name in (*(load.buffer for load in loads(scatter.body)), *index_reads(scatter.index)):
            return False
        promised, layout = scatter.results[0].type, self.type(name).layout
        if not as_promised(promised, layout) or (
            promised.layout.fixed and promised.layout.offset != layout.offset
        ):
            return False
        self.placements[scatter.name] = Placement(self.type(name), base=name)
        self._owned.add(scatter.name)
        return True
