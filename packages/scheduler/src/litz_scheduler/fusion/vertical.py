"""Vertical and sibling fusion of one operation into a fusion candidate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from litz_ir.fused import Reason
from litz_ir.loops import Operation, Pointwise, Scan
from litz_ir.scalar import nested_reductions
from litz_ir.symbols import SymbolTable, product
from litz_ir.target import Capabilities
from litz_scheduler import reasons
from litz_scheduler.analysis.cost import estimate, points
from litz_scheduler.analysis.fusion_candidate import FusionCandidate, ScheduledNode, scheduled_node
from litz_scheduler.legality.axis_alignment import Alignment, Fusible, alignments, realign
from litz_scheduler.legality.matmul import shares_nested_reductions
from litz_scheduler.legality.producer_reads import phase_for, preserves_versions, rows_read
from litz_scheduler.options import SchedulerOptions


@dataclass(frozen=True, slots=True)
class FusionLimits:
    """Limits of a device on fused kernels."""

    statements: int
    """The most statements of a kernel."""
    points: int
    """Outer points that a kernel needs at least to keep the device busy."""
    max_row: int = 0
    """The longest row, in elements, that one thread block of a GPU processes at once; 0 on other devices."""
    chunks: bool = False
    """True where pointwise loops may run in the chunks of rows of which columns are summed, as tiles of a GPU do."""
    scratch: int = 0
    """Bytes of scratch arrays for each outer point, which hold results of fused scans and rows that are read at other
    points than their own; 0 where there are none."""

    @staticmethod
    def of(capabilities: Capabilities | None, options: SchedulerOptions) -> FusionLimits:
        """Return the limits of a device with such capabilities; ``None`` stands for an unknown device."""
        if capabilities is None:
            return FusionLimits(512, options.min_parallel_points)
        model = capabilities.model
        parallel_points = options.min_parallel_points * (model.threads + model.sm_count)
        if options.batch_invariant and not capabilities.is_gpu:
            parallel_points = 0
        return FusionLimits(
            capabilities.max_statements,
            parallel_points,
            options.long_row if capabilities.is_gpu else 0,
            capabilities.is_gpu and capabilities.max_tile_elements > 0,
            capabilities.scratch_bytes,
        )


@dataclass(frozen=True, slots=True)
class FusedCandidate:
    """The axes and members of a candidate after fusion of an operation."""

    alignment: Alignment
    """The common axes of the candidate and the operation."""
    members: list[ScheduledNode]
    """The members, the new operation last."""

    def apply(self, candidate: FusionCandidate) -> None:
        """Update the candidate in place."""
        candidate.outer, candidate.inner = self.alignment.outer, self.alignment.inner
        candidate.members = self.members


def try_fuse(
    candidate: FusionCandidate,
    operation: Fusible,
    symbols: SymbolTable,
    roots: Mapping[str, str],
    limits: FusionLimits,
    *,
    sibling: bool = False,
) -> FusedCandidate | Reason:
    """Return the candidate with the operation fused, or the reason for which this is not legal.

    A ``sibling``, which reads a buffer that the candidate reads too, must load an element that a member loads at the
    same point; otherwise the common buffer is read twice anyway.
    """
    scans = [each.operation for each in candidate.members if each.scans]
    if isinstance(operation, Scan) and row_bytes((*scans, operation), symbols) > limits.scratch:
        return reasons.REFUSE_SIZE
    reason = reasons.REFUSE_DOMAIN
    for alignment in alignments(candidate, operation, chunks=limits.chunks):
        if _starves(candidate, operation, alignment, symbols, limits):
            reason = reasons.REFUSE_PARALLEL
            continue
        members = realign(candidate, alignment, symbols)
        axes = alignment.outer + alignment.inner
        new_node = scheduled_node(operation, alignment.own, 0, alignment.own_inner, axes, symbols)
        defined = {value.name: node for node in members for value in node.operation.results}
        phase = phase_for(new_node, defined, alignment.inner, rows=limits.scratch > 0)
        if phase is None:
            reason = reasons.REFUSE_INDEX
            continue
        if sibling and not {load for node in members for load in node.loads}.intersection(new_node.loads):
            reason = reasons.REFUSE_TRAFFIC
            continue
        follows = phase > 0 and not new_node.inner
        if candidate.is_matmul and not follows and not shares_nested_reductions(new_node, members):
            reason = reasons.REFUSE_MATMUL
            continue
        members.append(replace(new_node, phase=phase))
        if _scratch_bytes(members, alignment, symbols) > limits.scratch:
            reason = reasons.REFUSE_SIZE
            continue
        if preserves_versions(members, roots):
            return FusedCandidate(alignment, members)
        reason = reasons.REFUSE_VERSION
    return reason


def row_bytes(scans: Iterable[Operation], symbols: SymbolTable) -> int:
    """Return the bytes of one row of all results of scans, at typical sizes."""
    return sum(
        estimate(scan.scan_axis.size, symbols) * value.type.dtype.itemsize
        for scan in scans
        if isinstance(scan, Scan)
        for value in scan.results
    )


def _scratch_bytes(members: Sequence[ScheduledNode], alignment: Alignment, symbols: SymbolTable) -> int:
    """Return the bytes of the rows that members read at other points; 0 where there are none."""
    rows = rows_read(members)
    if not rows:
        return 0
    scans = [node.operation for node in members if node.scans]
    elements = estimate(points(alignment.inner), symbols)
    sizes = {v.name: v.type.dtype.itemsize for node in members for v in node.operation.results}
    return row_bytes(scans, symbols) + elements * sum(sizes[name] for name in rows)


def _starves(
    candidate: FusionCandidate,
    operation: Fusible,
    alignment: Alignment,
    symbols: SymbolTable,
    limits: FusionLimits,
) -> bool:
    """Return True when fusion would leave too few outer points to keep the device busy.

    A row of at most ``max_row`` elements is exempt: a thread block processes it faster than another kernel is
    launched. A thread block of a loop that sums its rows has whole rows: with no more outer points than a row has,
    it would process all of them.
    """
    before = estimate(points(candidate.outer), symbols)
    after = estimate(points(alignment.outer), symbols)
    own = estimate(points(operation.axes), symbols)
    if alignment.inner and isinstance(operation, Pointwise) and own > limits.max_row > 0:
        rows = [each.axes for each in nested_reductions(*operation.bodies)]
        if any(after <= estimate(product(size for _, size in axes), symbols) for axes in rows):
            return True
    return after < before and after < limits.points and before > limits.max_row * max(after, 1)
