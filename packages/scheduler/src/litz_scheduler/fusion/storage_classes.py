"""Storage classes: whether a value of a group is inlined, kept in a register or scratch, or stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from litz_ir.fused import FusedGraph, Group, Member, StorageClass
from litz_ir.loops import LoopGraph, Value
from litz_ir.passes import PassContext
from litz_scheduler.cost import body_cost
from litz_scheduler.fusion.groups import FusionGroups
from litz_scheduler.fusion_candidate import FusionCandidate, ScheduledNode
from litz_scheduler.graph_facts import Materialization
from litz_scheduler.options import SchedulerOptions


@dataclass(frozen=True, slots=True)
class StorageClasses:
    """Finish the groups in the order that they run, with a storage class for each value that they define."""

    options: SchedulerOptions
    name: str = "storage-classes"
    ulp: int = 0

    def apply(self, data: FusionGroups, context: PassContext) -> FusedGraph:
        """The fused graph of the groups."""
        made = _Groups(data.graph, tuple(data.ordered()), self.options)
        groups = tuple(made.group(f"g{k}", draft) for k, draft in enumerate(made.drafts))
        return FusedGraph(data.graph, groups, tuple(context.decisions))


class _Groups:
    def __init__(
        self, graph: LoopGraph, drafts: tuple[FusionCandidate, ...], options: SchedulerOptions
    ) -> None:
        self.drafts = drafts
        self.dear = options.scratch_cost
        self.memory = Materialization(graph).memory
        self.names = list(graph.named())
        self.readers: dict[str, set[int]] = {}
        for draft in drafts:
            for seen in draft.members:
                for name in seen.operation.reads:
                    self.readers.setdefault(name, set()).add(draft.number)

    def group(self, name: str, draft: FusionCandidate) -> Group:
        last_read: dict[str, int] = {}
        for seen in draft.members:
            for load in seen.loads:
                last_read[load.buffer] = max(last_read.get(load.buffer, 0), seen.phase)
        values = [(value, seen) for seen in draft.members for value in seen.operation.results]
        fates = tuple((v.name, self._fate(v, seen, draft, last_read)) for v, seen in values)
        inside = {value.name for value, _ in values}
        reads = dict.fromkeys(n for seen in draft.members for n in seen.operation.reads if n not in inside)
        writes = tuple(n for n, fate in fates if fate == "store")
        members = tuple(
            Member(self._name(s, draft), s.phase, s.inner, s.index, s.bodies) for s in draft.members
        )
        return Group(name, draft.outer, draft.inner, members, fates, tuple(reads), writes)

    def _name(self, seen: ScheduledNode, draft: FusionCandidate) -> str:
        # What defines no value is alone in its group, which keeps its position in the graph.
        return seen.operation.name if seen.operation.results else self.names[draft.position]

    def _fate(
        self, value: Value, seen: ScheduledNode, draft: FusionCandidate, last_read: Mapping[str, int]
    ) -> StorageClass:
        elsewhere = self.readers.get(value.name, set()) - {draft.number}
        if value.name in self.memory or elsewhere or value.replaces is not None or not seen.bodies:
            return "store"
        if seen.reduces:
            return "register"
        later = last_read.get(value.name, 0) > seen.phase
        return "scratch" if later and seen.inner and body_cost(*seen.bodies) >= self.dear else "inline"
