"""Trying to put an operation into a group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from litz_ir.loops import Pointwise, Reduction
from litz_ir.symbols import SymbolTable
from litz_ir.target import Capabilities
from litz_scheduler.cost import estimate, points
from litz_scheduler.fusion_candidate import FusionCandidate, ScheduledNode, scheduled_node
from litz_scheduler.legality.axis_alignment import Alignment, alignments, realign
from litz_scheduler.legality.matmul import shares_nested_reductions
from litz_scheduler.legality.producer_reads import phase_for, preserves_versions
from litz_scheduler.options import SchedulerOptions


@dataclass(frozen=True, slots=True)
class FusionLimits:
    """What joining asks of the machine: the statements that a kernel may have, the points that must be left to run
    side by side, and the length of a row that a GPU's program takes in one go (0: the machine is none)."""

    statements: int
    points: int
    max_row: int = 0

    @staticmethod
    def of(known: Capabilities | None, options: SchedulerOptions) -> FusionLimits:
        """What is asked of a machine with such capabilities."""
        if known is None:
            return FusionLimits(512, options.min_parallel_points)
        side_by_side = options.min_parallel_points * (known.threads + known.sm_count)
        return FusionLimits(known.max_statements, side_by_side, options.long_row if known.sm_count else 0)


@dataclass(frozen=True, slots=True)
class FusedCandidate:
    """A group's axes and members, the newcomer last."""

    alignment: Alignment
    members: list[ScheduledNode]

    def apply(self, draft: FusionCandidate) -> None:
        """Let the group be so."""
        draft.outer, draft.inner = self.alignment.outer, self.alignment.inner
        draft.members = self.members


def try_fuse(
    draft: FusionCandidate,
    operation: Pointwise | Reduction,
    symbols: SymbolTable,
    roots: Mapping[str, str],
    machine: FusionLimits,
    *,
    sibling: bool = False,
) -> FusedCandidate | str:
    """The group with the operation in it, or the reason why that cannot be. A ``sibling`` must read something where
    the group reads it too: sharing a buffer gains nothing when its elements come at different times."""
    reason = "refuse.domain"
    for alignment in alignments(draft, operation):
        if _starves(draft, alignment, symbols, machine):
            reason = "refuse.parallel"
            continue
        members = realign(draft, alignment, symbols)
        axes = alignment.outer + alignment.inner
        newcomer = scheduled_node(operation, alignment.own, 0, alignment.own_inner, axes, symbols)
        defined = {value.name: seen for seen in members for value in seen.operation.results}
        phase = phase_for(newcomer, defined)
        if phase is None:
            reason = "refuse.index"
            continue
        if sibling and not {load for seen in members for load in seen.loads}.intersection(newcomer.loads):
            reason = "refuse.traffic"
            continue
        follows = phase > 0 and not newcomer.inner
        if draft.is_matmul and not follows and not shares_nested_reductions(newcomer, members):
            reason = "refuse.matmul"
            continue
        members.append(replace(newcomer, phase=phase))
        if preserves_versions(members, roots):
            return FusedCandidate(alignment, members)
        reason = "refuse.version"
    return reason


def _starves(
    draft: FusionCandidate, alignment: Alignment, symbols: SymbolTable, machine: FusionLimits
) -> bool:
    """True when joining would leave too few outer points to keep the machine busy, and each of them much to do. Rows
    that a program of a GPU takes in one go are walked sooner than another kernel is launched."""
    before = estimate(points(draft.outer), symbols)
    after = estimate(points(alignment.outer), symbols)
    return after < before and after < machine.points and before > machine.max_row * max(after, 1)
