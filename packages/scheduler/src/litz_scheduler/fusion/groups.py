"""Fusion groups while they are built: the form of a graph between the fusion passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from litz_ir.errors import VerifyError
from litz_ir.fused import Decision, Reason
from litz_ir.loops import LoopGraph, Pointwise, Reduction, Scan, Scatter, Value
from litz_ir.passes import PassContext
from litz_ir.scalar import loads
from litz_scheduler.analysis.fusion_candidate import FusionCandidate
from litz_scheduler.analysis.graph_facts import reads_rows
from litz_scheduler.analysis.iteration_space import space_of
from litz_scheduler.fusion.vertical import FusionLimits, try_fuse
from litz_scheduler.legality.axis_alignment import Fusible
from litz_scheduler.legality.precedence import Precedence
from litz_scheduler.options import SchedulerOptions

BUFFERS = 96
"""Values that the members of a group may read, including those that they define."""


@dataclass(slots=True)
class FusionGroups:
    """The operations of a graph, divided into fusion candidates."""

    graph: LoopGraph
    """The loop graph."""
    candidates: dict[int, FusionCandidate]
    """The candidates by their numbers in ``order``."""
    order: Precedence
    """The order that dependencies impose on the candidates."""
    roots: Mapping[str, str]
    """For each value the oldest one whose memory it may share."""

    def ordered(self) -> list[FusionCandidate]:
        """Return the candidates, each after those that it depends on."""
        return [
            self.candidates[n] for n in self.order.in_order(lambda number: self.candidates[number].position)
        ]

    def verify(self) -> None:
        """Check that each operation is in one group, and that groups run after the definitions that they read.

        Raises ``VerifyError``.
        """
        ordered = self.ordered()
        members = [id(node.operation) for candidate in ordered for node in candidate.members]
        if sorted(members) != sorted(map(id, self.graph.operations)):
            raise VerifyError(
                f"{len(members)} members for {len(self.graph.operations)} operations",
                check="fusion.members",
                node=self.graph.name,
            )
        definers = {v.name: k for k, candidate in enumerate(ordered) for v in _results(candidate)}
        for position, candidate in enumerate(ordered):
            for operation in (node.operation for node in candidate.members):
                late = next((name for name in operation.reads if definers.get(name, -1) > position), None)
                if late is not None:
                    raise VerifyError(
                        f"%{late} is read before its group runs", check="fusion.order", node=operation.name
                    )

    def copy(self) -> FusionGroups:
        """Return a copy that can be changed independently."""
        candidates = {
            number: replace(each, reads=set(each.reads)) for number, each in self.candidates.items()
        }
        return FusionGroups(self.graph, candidates, self.order.copy(), self.roots)


class Merger:
    """Merge two candidates where the limits of a kernel allow it, and record the decision."""

    def __init__(self, groups: FusionGroups, context: PassContext, options: SchedulerOptions) -> None:
        self._groups = groups
        self._context = context
        self._options = options
        self._values = groups.graph.values()

    def limits(self, candidate: FusionCandidate, operation: Fusible) -> FusionLimits:
        """Return the fusion limits of the device of a candidate, for the fusion of an operation."""
        limits = FusionLimits.of(self._context.machine(candidate.device), self._options)
        if limits.chunks and not self._reads_rows(candidate, operation):
            return replace(limits, chunks=False)
        return limits

    def _reads_rows(self, candidate: FusionCandidate, operation: Fusible) -> bool:
        """Return True where pointwise loops, the operation or a candidate of them, read what is contiguous along their
        last axis: tiles of columns would read other elements in parts of sectors."""
        if candidate.inner:
            axes, found = space_of(operation).outer, loads(*operation.bodies)
        else:
            axes = candidate.outer
            found = tuple(load for node in candidate.members for load in node.loads)
        return reads_rows(found, axes, self._values, self._groups.graph.symbols)

    def note(self, candidate: FusionCandidate, name: str, verdict: str, reason: Reason, stake: int) -> None:
        """Record the decision about a candidate and the operation called ``name``; ``stake`` is in bytes."""
        self._context.decide(Decision("fusion", _subject(candidate, name), verdict, reason, stake))

    def allows(self, candidate: FusionCandidate, name: str) -> bool:
        """Count the fusion of a candidate and the operation called ``name``; return False where the fuel for fusions
        is spent."""
        return self._context.fuel is None or self._context.allows("fusion", _subject(candidate, name))

    def fits(self, target: FusionCandidate, other: FusionCandidate) -> bool:
        """Return True where two candidates together stay within the limits of a kernel."""
        limit = FusionLimits.of(self._context.machine(target.device), self._options).statements
        return target.size + other.size <= limit and len(target.reads | other.reads) <= BUFFERS

    def merge(self, target: FusionCandidate, other: FusionCandidate, stake: int, why: Reason) -> bool:
        """Append the members of ``target`` to those of ``other``, and replace ``target`` by the result.

        Returns False, and changes nothing, where one of the members cannot be fused or fuel is spent.
        """
        groups = self._groups
        trial = FusionCandidate(other.number, other.device, other.outer, other.inner, list(other.members))
        trial.is_matmul = other.is_matmul
        for node in target.members:
            assert isinstance(node.operation, Pointwise | Reduction | Scan | Scatter)
            limits = self.limits(trial, node.operation)
            fused = try_fuse(trial, node.operation, groups.graph.symbols, groups.roots, limits)
            if isinstance(fused, Reason):
                return False
            fused.apply(trial)
        if not self.allows(other, target.members[0].operation.name):
            return False
        target.outer, target.inner, target.members = trial.outer, trial.inner, trial.members
        target.is_matmul = other.is_matmul
        target.size += other.size
        target.reads |= other.reads
        groups.order.merge(target.number, other.number)
        del groups.candidates[other.number]
        self.note(target, other.members[0].operation.name, "fuse", why, stake)
        return True


def _subject(candidate: FusionCandidate, name: str) -> str:
    """Return the subject of a decision about a candidate and the operation called ``name``."""
    return f"{name} + group of {candidate.members[0].operation.name}"


def _results(candidate: FusionCandidate) -> list[Value]:
    """Return the values that a candidate defines."""
    return [value for node in candidate.members for value in node.operation.results]
