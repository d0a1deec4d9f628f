"""Fusion groups in the making: the form of a graph between the passes of fusion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from litz_ir.errors import VerifyError
from litz_ir.fused import Decision
from litz_ir.loops import LoopGraph, Pointwise, Reduction, Value
from litz_ir.passes import PassContext
from litz_ir.verifier import verify
from litz_scheduler.fusion.vertical import FusionLimits, try_fuse
from litz_scheduler.fusion_candidate import FusionCandidate
from litz_scheduler.legality.precedence import Precedence
from litz_scheduler.options import SchedulerOptions

BUFFERS = 96
"""The values that the members of a group may read, those that they define included."""


@dataclass(slots=True)
class FusionGroups:
    """The operations of a graph in groups.

    ``drafts`` are the groups by their numbers in ``order``, which says what runs before what; ``roots`` gives for each
    value the oldest one whose memory it may share.
    """

    graph: LoopGraph
    drafts: dict[int, FusionCandidate]
    order: Precedence
    roots: Mapping[str, str]

    def ordered(self) -> list[FusionCandidate]:
        """The groups, each after those that it waits for."""
        return [self.drafts[n] for n in self.order.in_order(lambda number: self.drafts[number].position)]

    def copy(self) -> FusionGroups:
        """The same groups, to be changed."""
        drafts = {number: replace(each, reads=set(each.reads)) for number, each in self.drafts.items()}
        return FusionGroups(self.graph, drafts, self.order.copy(), self.roots)


class Merger:
    """Makes one of two groups, where a kernel may be that large, and records why."""

    def __init__(self, groups: FusionGroups, context: PassContext, options: SchedulerOptions) -> None:
        self._groups = groups
        self._context = context
        self._options = options

    def machine(self, draft: FusionCandidate) -> FusionLimits:
        """The machine that a group runs on."""
        return FusionLimits.of(self._context.machine(draft.device), self._options)

    def note(self, draft: FusionCandidate, name: str, verdict: str, reason: str, stake: int) -> None:
        """Record whether a group takes what is called ``name``."""
        subject = f"{name} + group of {draft.members[0].operation.name}"
        self._context.decide(Decision("fusion", subject, verdict, reason, stake))

    def fits(self, home: FusionCandidate, other: FusionCandidate) -> bool:
        """True where a kernel may be as large as both together."""
        most = self.machine(home).statements
        return home.size + other.size <= most and len(home.reads | other.reads) <= BUFFERS

    def merge(self, home: FusionCandidate, other: FusionCandidate, stake: int, why: str) -> bool:
        """Rebuild ``other`` with the members of ``home`` after its own; nothing changes when one does not fit."""
        groups, machine = self._groups, self.machine(home)
        trial = FusionCandidate(other.number, other.device, other.outer, other.inner, list(other.members))
        trial.is_matmul = other.is_matmul
        for seen in home.members:
            assert isinstance(seen.operation, Pointwise | Reduction)
            joined = try_fuse(trial, seen.operation, groups.graph.symbols, groups.roots, machine)
            if isinstance(joined, str):
                return False
            joined.apply(trial)
        home.outer, home.inner, home.members = trial.outer, trial.inner, trial.members
        home.is_matmul = other.is_matmul
        home.size += other.size
        home.reads |= other.reads
        groups.order.merge(home.number, other.number)
        del groups.drafts[other.number]
        self.note(home, other.members[0].operation.name, "fuse", why, stake)
        return True


@verify.register
def verify_groups(groups: FusionGroups) -> None:
    """Check that each operation is in one group, and that groups run after those that define what they read; raises
    ``VerifyError``."""
    ordered = groups.ordered()
    members = [id(seen.operation) for draft in ordered for seen in draft.members]
    if sorted(members) != sorted(map(id, groups.graph.operations)):
        raise VerifyError(
            f"{len(members)} members for {len(groups.graph.operations)} operations",
            check="fusion.members",
            node=groups.graph.name,
        )
    definers = {v.name: k for k, draft in enumerate(ordered) for v in _results(draft)}
    for position, draft in enumerate(ordered):
        for operation in (seen.operation for seen in draft.members):
            late = next((name for name in operation.reads if definers.get(name, -1) > position), None)
            if late is not None:
                raise VerifyError(
                    f"%{late} is read before its group runs", check="fusion.order", node=operation.name
                )


def _results(draft: FusionCandidate) -> list[Value]:
    return [value for seen in draft.members for value in seen.operation.results]
