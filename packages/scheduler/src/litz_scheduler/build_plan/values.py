"""Where the values of a plan live, as far as its steps have come."""

from __future__ import annotations

from collections import Counter

from litz_ir.errors import ScheduleError
from litz_ir.loops import LoopGraph, Scatter, TensorType, Value, View, index_reads
from litz_ir.plan import Placement
from litz_ir.scalar import loads
from litz_scheduler.graph_facts import alias_type, as_promised, dense_type, output_names
from litz_scheduler.memory.slots import UNPLACED


class ValuePlacements:
    """Placements by name. What kernels write first is left for the memory planner to place."""

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
        """The type of a value, with the layout that its memory has."""
        placement = self.placements.get(name)
        if placement is None:
            raise ScheduleError(
                "a value is read before anything defines it", node=name, hint="verify the fused graph"
            )
        return placement.type

    def memory(self, name: str) -> str:
        """The oldest buffer with the same elements in the same places: a kernel that writes a new version and reads
        the old one has one parameter for both."""
        while True:
            placement = self.placements[name]
            if placement.base is None or name in self._elsewhere:
                return name
            base, own = self.placements[placement.base].type, placement.type
            if base.layout != own.layout or base.dtype != own.dtype:
                return name
            name = placement.base

    def written(self, value: Value) -> None:
        """A kernel writes ``value``: into memory of its own, or into that of the version it replaces."""
        if value.replaces is not None:
            self.placements[value.name] = Placement(self.type(value.replaces), base=value.replaces)
        elif value.name not in self.placements:
            self.placements[value.name] = Placement(dense_type(value.type), storage=UNPLACED)
            self._owned.add(value.name)

    def returned(self, value: Value, base: str | None = None) -> None:
        """A call or region hands over ``value``: the next version of ``base``, an argument, or a view of it, which may
        start anywhere."""
        self.placements[value.name] = Placement(value.type, base=base)
        if base is not None and value.replaces != base:
            self._elsewhere.add(value.name)

    def alias(self, view: View) -> bool:
        """Let a view share its base's memory; false where strides cannot show it as promised."""
        type_ = alias_type(view, self.type(view.base), self.symbols)
        if type_ is None or not as_promised(view.results[0].type, type_.layout):
            return False
        self.placements[view.name] = Placement(type_, base=view.base)
        return True

    def reuse_base(self, scatter: Scatter) -> bool:
        """Let a scatter combine into its base's own memory: when nobody else wants the base, which a kernel of this
        plan stored, and it is not read on the way."""
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
