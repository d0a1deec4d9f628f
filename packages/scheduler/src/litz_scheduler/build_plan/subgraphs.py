"""Graphs that control flow runs, each planned once, under names of their own."""

from __future__ import annotations

from litz_ir.loops import LoopGraph
from litz_scheduler.build_plan.forms import Subgraph


class Subgraphs:
    """The graphs that were met so far, by identity."""

    def __init__(self) -> None:
        self._known: dict[int, Subgraph] = {}

    def of(self, graph: LoopGraph) -> tuple[Subgraph, bool]:
        """A graph with the name of its plan, and whether it is met for the first time."""
        found = self._known.get(id(graph))
        if found is not None:
            return found, False
        taken = {each.name for each in self._known.values()}
        name, count = graph.name, 2
        while name in taken:
            name, count = f"{graph.name}_{count}", count + 1
        self._known[id(graph)] = Subgraph(name, graph)
        return self._known[id(graph)], True
