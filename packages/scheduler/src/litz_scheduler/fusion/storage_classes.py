"""Storage classes: whether a value of a group is inlined, in a register, in scratch, or stored to memory."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from litz_ir.fused import FusedGraph, Group, Member, StorageClass
from litz_ir.loops import LoopGraph, Value
from litz_ir.passes import PassContext
from litz_scheduler.analysis.cost_model import CostModel, ThresholdCosts
from litz_scheduler.analysis.fusion_candidate import FusionCandidate, ScheduledNode
from litz_scheduler.analysis.graph_facts import Materialization
from litz_scheduler.fusion.groups import FusionGroups
from litz_scheduler.legality.producer_reads import rows_read


@dataclass(frozen=True, slots=True)
class StorageClasses:
    """Finish the groups in the order that they run, with a storage class for each value that they define."""

    costs: CostModel = field(default_factory=ThresholdCosts)
    name: str = "storage-classes"
    ulp: int = 0

    def apply(self, data: FusionGroups, context: PassContext) -> FusedGraph:
        """Return the fused graph."""
        made = _Groups(data.graph, tuple(data.ordered()), self.costs)
        groups = tuple(made.group(f"g{k}", candidate) for k, candidate in enumerate(made.candidates))
        return FusedGraph(data.graph, groups, tuple(context.decisions))


class _Groups:
    """Construction of groups from the candidates of a graph."""

    def __init__(self, graph: LoopGraph, candidates: tuple[FusionCandidate, ...], costs: CostModel) -> None:
        self.candidates = candidates
        self.costs = costs
        self.memory = Materialization(graph).memory
        self.names = list(graph.named())
        self.readers: dict[str, set[int]] = {}
        for candidate in candidates:
            for node in candidate.members:
                for name in node.operation.reads:
                    self.readers.setdefault(name, set()).add(candidate.number)

    def group(self, name: str, candidate: FusionCandidate) -> Group:
        """Return a candidate as a group."""
        last_read: dict[str, int] = {}
        for node in candidate.members:
            for load in node.loads:
                last_read[load.buffer] = max(last_read.get(load.buffer, 0), node.phase)
        values = [(value, node) for node in candidate.members for value in node.operation.results]
        rows = rows_read(candidate.members)
        classes = tuple(
            (v.name, self._storage_class(v, node, candidate, last_read, rows)) for v, node in values
        )
        inside = {value.name for value, _ in values}
        reads = dict.fromkeys(
            n for node in candidate.members for n in node.operation.reads if n not in inside
        )
        writes = tuple(name for name, each in classes if each == "store")
        members = tuple(
            Member(self._name(s, candidate), s.phase, s.inner, s.index, s.bodies) for s in candidate.members
        )
        return Group(name, candidate.outer, candidate.inner, members, classes, tuple(reads), writes)

    def _name(self, node: ScheduledNode, candidate: FusionCandidate) -> str:
        # An operation without results is alone in its group, and is named after its position in the graph.
        return node.operation.name if node.operation.results else self.names[candidate.position]

    def _storage_class(
        self,
        value: Value,
        node: ScheduledNode,
        candidate: FusionCandidate,
        last_read: Mapping[str, int],
        rows: Container[str],
    ) -> StorageClass:
        """Return the storage class of a value.

        It is scratch where a later phase reads the value and the cost model finds that cheaper than to recompute it,
        for results of scans, and for ``rows``, which are read at other points.
        """
        elsewhere = self.readers.get(value.name, set()) - {candidate.number}
        if value.name in self.memory or elsewhere or value.replaces is not None or not node.bodies:
            return "store"
        if node.reduces:
            return "register"
        if node.scans or value.name in rows:
            return "scratch"
        later = last_read.get(value.name, 0) > node.phase
        kept = later and node.inner and self.costs.uses_scratch(node.bodies)
        return "scratch" if kept else "inline"
