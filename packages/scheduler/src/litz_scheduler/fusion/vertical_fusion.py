"""Vertical and sibling fusion, in one walk in program order.

Each operation joins the group of what it reads, or a group that reads what it reads, or starts its own. A join is legal
when the spaces agree, when everything read of the group is read at the point where it is computed (or is reduced
before), when no version is overwritten too early, and when it makes no cycle.
"""

from __future__ import annotations

from dataclasses import dataclass

from litz_ir.device import CPU, Device
from litz_ir.loops import LoopGraph, Operation, Pointwise, Reduction
from litz_ir.passes import PassContext
from litz_scheduler.cost import body_size, estimate, type_bytes
from litz_scheduler.fusion.groups import BUFFERS, FusionGroups, Merger
from litz_scheduler.fusion.vertical import FusedCandidate, try_fuse
from litz_scheduler.fusion_candidate import FusionCandidate, ScheduledNode, new_candidate
from litz_scheduler.legality.dependency_tracker import DependencyTracker
from litz_scheduler.legality.matmul import gpu_kinds, has_nested_reductions, is_matmul
from litz_scheduler.legality.precedence import Precedence
from litz_scheduler.options import SchedulerOptions

MIN_SHARED_FRACTION = 8
"""Large loops become one for the sake of what both read only if that is at least this fraction of what one moves."""


@dataclass(frozen=True, slots=True)
class VerticalFusion:
    """Group the operations of a graph whose values are settled (see ``litz_scheduler.realise``) with those that define
    what they read, or that read the same."""

    options: SchedulerOptions
    name: str = "vertical-fusion"
    ulp: int = 0

    def apply(self, data: LoopGraph, context: PassContext) -> FusionGroups:
        """The graph with its operations in groups."""
        walk = _Walk(data, context, self.options)
        for position, operation in enumerate(data.operations):
            walk.place(position, operation)
        return walk.groups


class _Walk:
    def __init__(self, graph: LoopGraph, context: PassContext, options: SchedulerOptions) -> None:
        self.graph = graph
        self.options = options
        self.values = graph.values()
        self.needs = DependencyTracker(graph)
        self.order = Precedence()
        self.drafts: dict[int, FusionCandidate] = {}
        self.groups = FusionGroups(graph, self.drafts, self.order, self.needs.roots)
        self.merger = Merger(self.groups, context, options)
        self.readers: dict[str, list[int]] = {}
        self.graphics = gpu_kinds(context)

    def place(self, position: int, operation: Operation) -> None:
        """Find or make the group of the operation at ``position``."""
        needed = {self.order.find(number) for number in self.needs.of(operation)}
        home = self._join_any(operation, needed) if self._fusable(operation) else None
        if home is None:
            home = self._start(operation)
        home.position = position
        self.order.require(home.number, needed - {home.number})
        self.needs.enter(operation, home.number)
        for name in operation.reads:
            self.readers.setdefault(name, []).append(home.number)
        if home.fusible:
            self._absorb(home, operation)

    def _fusable(self, operation: Operation) -> bool:
        if operation.token or not self.options.fuse:
            return False
        if isinstance(operation, Reduction):
            return any(axis.size != 1 for axis in operation.reduce_axes)
        return isinstance(operation, Pointwise)

    def _start(self, operation: Operation) -> FusionCandidate:
        number = self.order.add()
        device = _device(operation)
        if isinstance(operation, Pointwise | Reduction):
            draft = new_candidate(operation, number, device, self.graph.symbols)
            draft.size = body_size(*operation.bodies)
            draft.reads.update(operation.reads)
        else:
            draft = FusionCandidate(number, device, members=[ScheduledNode(operation, 0, False, (), (), ())])
        draft.fusible = self._fusable(operation)
        draft.is_matmul = is_matmul(operation, self.graphics)
        self.drafts[number] = draft
        return draft

    # --- joining -----------------------------------------------------------------------------------------------------

    def _candidates(self, operation: Operation) -> list[tuple[FusionCandidate, str, int]]:
        """Groups to join, with the reason and the bytes that need not be read again: producers, then siblings."""
        shared: dict[int, dict[str, int]] = {}
        producers: set[int] = set()
        for name in operation.reads:
            stake = estimate(type_bytes(self.values[name].type), self.graph.symbols)
            recent = self.readers.get(name, [])
            partners = {self.order.find(n) for n in recent[max(len(recent) - self.options.siblings, 0) :]}
            if name in self.needs.owner:
                producers.add(self.order.find(self.needs.owner[name]))
                partners.add(self.order.find(self.needs.owner[name]))
            for number in partners:
                shared.setdefault(number, {})[name] = stake
        stakes = {number: sum(names.values()) for number, names in shared.items()}
        # What uses the result of a product of matrices has no other chance to find it in registers.
        ranked = sorted(
            stakes, key=lambda n: (n not in producers, not self.drafts[n].is_matmul, -stakes[n], -n)
        )
        reasons = {True: "fuse.producer", False: "fuse.sibling"}
        return [
            (self.drafts[n], reasons[n in producers], stakes[n]) for n in ranked if self.drafts[n].fusible
        ]

    def _worthwhile(self, operation: Operation, why: str, stake: int) -> bool:
        """True unless two large loops would share next to nothing: each then runs better with fewer streams."""
        if why == "fuse.producer":
            return True
        names = (*operation.reads, *(value.name for value in operation.results))
        moved = sum(estimate(type_bytes(self.values[name].type), self.graph.symbols) for name in names)
        return moved <= self.options.sibling_bytes or MIN_SHARED_FRACTION * stake >= moved

    def _join_any(self, operation: Operation, needed: set[int]) -> FusionCandidate | None:
        assert isinstance(operation, Pointwise | Reduction)
        candidates = self._candidates(operation)
        if is_matmul(operation, self.graphics):
            candidates = [
                each for each in candidates if each[0].is_matmul and has_nested_reductions(operation)
            ]
        size = body_size(*operation.bodies)
        for draft, why, stake in candidates:
            worth = self._worthwhile(operation, why, stake)
            sibling = why == "fuse.sibling"
            joined = self._try(draft, operation, needed, size, sibling) if worth else "refuse.traffic"
            if isinstance(joined, str):
                self.merger.note(draft, operation.name, "refuse", joined, stake)
                continue
            joined.apply(draft)
            draft.size += size
            draft.reads.update(operation.reads)
            self.merger.note(draft, operation.name, "fuse", why, stake)
            return draft
        return None

    def _try(
        self,
        draft: FusionCandidate,
        operation: Pointwise | Reduction,
        needed: set[int],
        size: int,
        sibling: bool,
    ) -> FusedCandidate | str:
        if draft.device != _device(operation):
            return "refuse.device"
        if self.order.between(draft.number, needed):
            return "refuse.order"
        machine = self.merger.machine(draft)
        if draft.size + size > machine.statements:
            return "refuse.size"
        if len(draft.reads.union(operation.reads)) > BUFFERS:
            return "refuse.buffers"
        symbols, roots = self.graph.symbols, self.needs.roots
        return try_fuse(draft, operation, symbols, roots, machine, sibling=sibling)

    # --- merging groups --------------------------------------------------------------------------------

    def _absorb(self, home: FusionCandidate, operation: Operation) -> None:
        """Merge other producers of the operation into its group where that is legal."""
        for name in operation.reads:
            if name not in self.needs.owner:
                continue
            other = self.drafts[self.order.find(self.needs.owner[name])]
            if other is home or not other.fusible or other.device != home.device or home.is_matmul:
                continue
            if self.merger.fits(home, other) and self._adjacent(other.number, home.number):
                stake = estimate(type_bytes(self.values[name].type), self.graph.symbols)
                self.merger.merge(home, other, stake, "fuse.producer")

    def _adjacent(self, first: int, second: int) -> bool:
        """True when nothing must run between two groups, nor the second before the first."""
        return not self.order.before(second, first) and not self.order.between(
            first, self.order.parents(second)
        )


def _device(operation: Operation) -> Device:
    return operation.results[0].type.device if operation.results else CPU
