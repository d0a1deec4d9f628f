"""Fusion: operations over the same points become one kernel.

One walk in program order: each operation joins the group of what it reads, or a group that reads what it reads, or
starts its own. A join is legal when the spaces agree, when everything read of the group is read at the point where it
is computed (or is reduced before), and when it makes no cycle. Ancestor sets are bit masks, so the cycle check costs
one machine operation per word.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

from litz_ir.device import CPU, Device
from litz_ir.fused.decision import Decision
from litz_ir.fused.group import Fate, FusedGraph, Group, Member
from litz_ir.loops.nodes import LoopGraph, Operation, Pointwise, Reduction, Value
from litz_ir.passes.base import PassContext
from litz_ir.scalar.expr import loads
from litz_ir.scalar.ops_table import HEAVY

from litz_scheduler.cost.compute import body_cost, body_size
from litz_scheduler.cost.traffic import estimate, points, type_bytes
from litz_scheduler.draft import Alignment, Draft, Seen, alignments, phase_for, realign, reordered, see, start
from litz_scheduler.domain import space_of
from litz_scheduler.options import SchedulerOptions
from litz_scheduler.graph import in_memory

SIBLINGS = 4
"""How many recent readers of a buffer are tried as partners of another reader."""


def fuse(graph: LoopGraph, context: PassContext, options: SchedulerOptions) -> FusedGraph:
    """Group the operations of a graph whose values are settled (see ``litz_scheduler.realise``)."""
    return _Fusion(graph, context, options).run()


@dataclass(frozen=True, slots=True)
class _Join:
    alignment: Alignment
    members: list[Seen]
    newcomer: Seen


class _Fusion:
    def __init__(self, graph: LoopGraph, context: PassContext, options: SchedulerOptions) -> None:
        self.graph = graph
        self.context = context
        self.options = options
        self.values = graph.values()
        self.named = list(graph.named())
        self.drafts: dict[int, Draft] = {}
        self.owner: dict[str, int] = {}
        self.readers: dict[str, list[int]] = {}
        self.tokens: dict[str, int] = {}
        self.limit = min((c.max_statements for c in context.capabilities.values()), default=512)
        self.threads = max((c.threads + c.processors for c in context.capabilities.values()), default=1)

    def run(self) -> FusedGraph:
        for position, operation in enumerate(self.graph.operations):
            self._place(position, operation)
        return self._finish()

    # --- placing one operation ---------------------------------------------------------------------------------------

    def _place(self, position: int, operation: Operation) -> None:
        needed = self._needs(operation)
        home: Draft | None = None
        if self._fusable(operation):
            home = self._join_any(operation, needed)
        if home is None:
            home = self._start(position, operation)
        for value in operation.results:
            self.owner[value.name] = home.number
        home.position = position
        self._depend(home, needed - {home.number})
        for name in operation.reads:
            self.readers.setdefault(name, []).append(home.number)
        if operation.token:
            self.tokens[operation.token] = home.number
        if home.loops:
            self._absorb(home, operation)

    def _needs(self, operation: Operation) -> set[int]:
        """The groups that must run before: producers, the last with its token, readers of what it overwrites."""
        needed = {self.owner[name] for name in operation.reads if name in self.owner}
        if operation.token in self.tokens:
            needed.add(self.tokens[operation.token])
        replaced = [v.replaces for v in operation.results if v.replaces is not None]
        replaced += [read for read, _ in getattr(operation, "mutates", ())]
        for name in replaced:
            needed.update(self.readers.get(name, ()))
        return needed

    def _fusable(self, operation: Operation) -> bool:
        if not isinstance(operation, Pointwise | Reduction) or operation.token:
            return False
        return self.options.fuse and all(value.replaces is None for value in operation.results)

    def _start(self, position: int, operation: Operation) -> Draft:
        number = len(self.drafts)
        device = self._device(operation)
        if isinstance(operation, Pointwise | Reduction):
            draft = start(operation, number, device, position, self.graph.symbols)
            draft.size = body_size(*operation.bodies)
        else:
            draft = Draft(number, device, members=[Seen(operation, 0, False, (), ())], position=position)
        # A loop that overwrites a buffer runs alone: others may still want the old version.
        draft.loops = self._fusable(operation)
        self.drafts[number] = draft
        return draft

    def _device(self, operation: Operation) -> Device:
        return operation.results[0].type.device if operation.results else CPU

    def _depend(self, draft: Draft, needed: set[int]) -> None:
        mask = draft.ancestors
        for number in needed:
            parent = self.drafts[number]
            mask |= parent.ancestors | 1 << number
        draft.parents |= needed
        added = mask & ~draft.ancestors
        if not added:
            return
        draft.ancestors = mask
        bit = 1 << draft.number
        for other in self.drafts.values():
            if other.ancestors & bit:
                other.ancestors |= mask

    # --- joining -----------------------------------------------------------------------------------------------------

    def _candidates(self, operation: Operation, needed: set[int]) -> list[int]:
        producers: dict[int, int] = {}
        siblings: dict[int, int] = {}
        for name in operation.reads:
            stake = estimate(type_bytes(self.values[name].type), self.graph.symbols)
            if name in self.owner:
                producers[self.owner[name]] = producers.get(self.owner[name], 0) + stake
            for number in self.readers.get(name, [])[-SIBLINGS:]:
                siblings[number] = siblings.get(number, 0) + stake
        ranked = sorted(producers, key=lambda n: -producers[n])
        ranked += sorted((n for n in siblings if n not in producers), key=lambda n: -siblings[n])
        return [n for n in ranked if n in self.drafts and self.drafts[n].loops]

    def _join_any(self, operation: Operation, needed: set[int]) -> Draft | None:
        assert isinstance(operation, Pointwise | Reduction)
        for number in self._candidates(operation, needed):
            draft = self.drafts[number]
            kind = "fuse.producer" if number in needed else "fuse.sibling"
            reason = self._refusal(draft, operation, needed)
            joined = self._try(draft, operation) if reason is None else None
            if joined is None:
                self._note(draft, operation, "refuse", reason or "refuse.domain")
                continue
            self._apply(draft, joined)
            draft.size += body_size(*operation.bodies)
            self._note(draft, operation, "fuse", kind)
            return draft
        return None

    def _refusal(self, draft: Draft, operation: Operation, needed: set[int]) -> str | None:
        if draft.device != self._device(operation):
            return "refuse.device"
        bit = 1 << draft.number
        if any(self.drafts[n].ancestors & bit for n in needed if n != draft.number):
            return "refuse.order"
        assert isinstance(operation, Pointwise | Reduction)
        if draft.size + body_size(*operation.bodies) > self.limit:
            return "refuse.size"
        return None

    def _try(self, draft: Draft, operation: Pointwise | Reduction) -> _Join | None:
        space = space_of(operation)
        spaces = [space]
        other = reordered(space, operation, draft)
        if other is not None:
            spaces.insert(0, other)
        for candidate in spaces:
            for alignment in alignments(draft, candidate, isinstance(operation, Reduction)):
                if self._starves(draft, alignment):
                    continue
                members = realign(draft, alignment, self.graph.symbols)
                axes = alignment.outer + alignment.inner
                newcomer = see(operation, alignment.own, 0, alignment.own_inner, axes, self.graph.symbols)
                phase = phase_for(newcomer, members)
                if phase is not None:
                    return _Join(alignment, members, replace(newcomer, phase=phase))
        return None

    def _starves(self, draft: Draft, alignment: Alignment) -> bool:
        """True when joining would leave too few outer points to keep the machine busy."""
        before = estimate(points(draft.outer), self.graph.symbols)
        after = estimate(points(alignment.outer), self.graph.symbols)
        return after < before and after < 2 * self.threads

    def _apply(self, draft: Draft, join: _Join) -> None:
        draft.outer, draft.inner = join.alignment.outer, join.alignment.inner
        draft.members = [*join.members, join.newcomer]

    def _note(self, draft: Draft, operation: Operation, verdict: str, reason: str) -> None:
        subject = f"{operation.name} + group of {draft.members[0].operation.name}"
        stake = type_bytes(operation.results[0].type)
        self.context.decide(Decision("fusion", subject, verdict, reason, stake))

    # --- merging the other producers -----------------------------------------------------------------------------------

    def _absorb(self, home: Draft, operation: Operation) -> None:
        """Merge other producers of the operation into its group where that is legal."""
        for name in operation.reads:
            number = self.owner.get(name)
            if number is None or number == home.number:
                continue
            other = self.drafts[number]
            if other.loops and other.device == home.device and self._mergeable(home, other):
                self._merge(home, other)

    def _mergeable(self, home: Draft, other: Draft) -> bool:
        if home.size + other.size > self.limit or other.ancestors & (1 << home.number):
            return False
        bit = 1 << other.number
        between = any(self.drafts[n].ancestors & bit for n in home.parents if n != other.number)
        return not between

    def _merge(self, home: Draft, other: Draft) -> None:
        """Rebuild ``other`` with the members of ``home`` after its own; nothing changes when one does not fit."""
        trial = replace(other, members=list(other.members))
        for seen in home.members:
            operation = seen.operation
            assert isinstance(operation, Pointwise | Reduction)
            joined = self._try(trial, operation)
            if joined is None:
                return
            self._apply(trial, joined)
        home.outer, home.inner, home.members = trial.outer, trial.inner, trial.members
        home.size += other.size
        for seen in other.members:
            for value in seen.operation.results:
                self.owner[value.name] = home.number
        for numbers in self.readers.values():
            if other.number in numbers:
                numbers[:] = [home.number if n == other.number else n for n in numbers]
        del self.drafts[other.number]
        dead, bit = 1 << other.number, 1 << home.number
        for draft in self.drafts.values():
            if other.number in draft.parents:
                draft.parents.discard(other.number)
                draft.parents.add(home.number)
            if draft.ancestors & dead:
                draft.ancestors = (draft.ancestors & ~dead) | bit
        home.parents |= other.parents
        home.parents.discard(home.number)
        home.ancestors = (home.ancestors | other.ancestors) & ~(dead | bit)
        for draft in self.drafts.values():
            if draft.ancestors & bit:
                draft.ancestors |= home.ancestors
        for token, number in self.tokens.items():
            if number == other.number:
                self.tokens[token] = home.number
        self._note(home, other.members[0].operation, "fuse", "fuse.sibling")

    # --- the result ----------------------------------------------------------------------------------------------------

    def _finish(self) -> FusedGraph:
        memory = in_memory(self.graph)
        readers: dict[str, set[int]] = {}
        for draft in self.drafts.values():
            for seen in draft.members:
                for name in seen.operation.reads:
                    readers.setdefault(name, set()).add(draft.number)
        groups = tuple(
            self._group(f"g{k}", draft, memory, readers) for k, draft in enumerate(self._ordered())
        )
        return FusedGraph(self.graph, groups, tuple(self.context.decisions))

    def _ordered(self) -> list[Draft]:
        """Dependencies first; among those that are ready, the one that eager would have reached first."""
        waiting = {number: len(draft.parents) for number, draft in self.drafts.items()}
        children: dict[int, list[int]] = {}
        for number, draft in self.drafts.items():
            for parent in draft.parents:
                children.setdefault(parent, []).append(number)
        ready = [(self.drafts[n].position, n) for n, count in waiting.items() if count == 0]
        heapq.heapify(ready)
        order: list[Draft] = []
        while ready:
            _, number = heapq.heappop(ready)
            order.append(self.drafts[number])
            for child in children.get(number, ()):
                waiting[child] -= 1
                if waiting[child] == 0:
                    heapq.heappush(ready, (self.drafts[child].position, child))
        return order

    def _group(self, name: str, draft: Draft, memory: set[str], readers: dict[str, set[int]]) -> Group:
        fates: list[tuple[str, Fate]] = []
        for seen in draft.members:
            for value in seen.operation.results:
                fates.append((value.name, self._fate(value, seen, draft, memory, readers)))
        inside = {value.name for seen in draft.members for value in seen.operation.results}
        reads = dict.fromkeys(n for seen in draft.members for n in seen.operation.reads if n not in inside)
        writes = tuple(n for n, fate in fates if fate == "store")
        members = tuple(
            Member(self._operation_name(s, draft), s.phase, s.inner, s.index, s.bodies) for s in draft.members
        )
        return Group(name, draft.outer, draft.inner, members, tuple(fates), tuple(reads), writes)

    def _operation_name(self, seen: Seen, draft: Draft) -> str:
        # What defines no value is alone in its group, which keeps its position in the graph.
        return seen.operation.name if seen.operation.results else self.named[draft.position]

    def _fate(
        self, value: Value, seen: Seen, draft: Draft, memory: set[str], readers: dict[str, set[int]]
    ) -> Fate:
        elsewhere = readers.get(value.name, set()) - {draft.number}
        if value.name in memory or elsewhere or value.replaces is not None or not seen.bodies:
            return "store"
        if seen.reduces:
            return "keep"
        later = any(
            other.phase > seen.phase and any(load.buffer == value.name for load in loads(*other.bodies))
            for other in draft.members
        )
        return "local" if later and seen.inner and body_cost(*seen.bodies) >= HEAVY else "inline"
