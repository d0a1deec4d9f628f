"""Vertical and sibling fusion, in one traversal in program order.

Each operation is fused into the group of a producer, or into a group that reads the same buffers, or starts a group
of its own. Fusion is legal when the iteration spaces can be aligned, every value of the group is read at the point at
which it is computed (or is a finished reduction), no version is overwritten too early, and no cycle of groups arises.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from litz_ir.device import CPU, Device
from litz_ir.fused import Reason
from litz_ir.loops import SORT, LoopGraph, Operation, Pointwise, Reduction, Scan, Scatter
from litz_ir.passes import PassContext
from litz_scheduler import reasons
from litz_scheduler.analysis.cost import body_size, estimate, type_bytes
from litz_scheduler.analysis.cost_model import CostModel, ThresholdCosts
from litz_scheduler.analysis.fusion_candidate import FusionCandidate, ScheduledNode, new_candidate
from litz_scheduler.analysis.iteration_space import is_sum_of_chunks
from litz_scheduler.fusion.groups import BUFFERS, FusionGroups, Merger
from litz_scheduler.fusion.vertical import FusedCandidate, FusionLimits, row_bytes, try_fuse
from litz_scheduler.legality.axis_alignment import Fusible
from litz_scheduler.legality.dependency_tracker import DependencyTracker
from litz_scheduler.legality.matmul import (
    gpu_kinds,
    has_nested_reductions,
    is_matmul,
    is_tiled_convolution,
)
from litz_scheduler.legality.precedence import Precedence
from litz_scheduler.options import SchedulerOptions


@dataclass(frozen=True, slots=True)
class VerticalFusion:
    """Group the operations of a graph with their producers and siblings, after inlining (see
    ``litz_scheduler.realise``)."""

    options: SchedulerOptions
    costs: CostModel = field(default_factory=ThresholdCosts)
    name: str = "vertical-fusion"
    ulp: int = 0

    def apply(self, data: LoopGraph, context: PassContext) -> FusionGroups:
        """Return the operations of the graph in fusion candidates."""
        walk = _Walk(data, context, self.options, self.costs)
        for position, operation in enumerate(data.operations):
            walk.add(position, operation)
        return walk.groups


class _Walk:
    """Traversal of a graph in program order, with the groups made so far."""

    def __init__(
        self, graph: LoopGraph, context: PassContext, options: SchedulerOptions, costs: CostModel
    ) -> None:
        self.graph = graph
        self.context = context
        self.options = options
        self.costs = costs
        self.values = graph.values()
        self.needs = DependencyTracker(graph)
        self.order = Precedence()
        self.candidates: dict[int, FusionCandidate] = {}
        self.groups = FusionGroups(graph, self.candidates, self.order, self.needs.roots)
        self.merger = Merger(self.groups, context, options)
        self.readers: dict[str, list[int]] = {}
        self.gpu_kinds = gpu_kinds(context)

    def add(self, position: int, operation: Operation) -> None:
        """Add the operation at ``position`` to a group, or to a new one."""
        needed = {self.order.find(number) for number in self.needs.of(operation)}
        target = self._fuse_any(operation, needed) if self._fusable(operation) else None
        if target is None:
            target = self._start(operation)
        target.position = position
        self.order.require(target.number, needed - {target.number})
        self.needs.enter(operation, target.number)
        for name in operation.reads:
            self.readers.setdefault(name, []).append(target.number)
        if target.fusible:
            self._absorb(target, operation)

    def _fusable(self, operation: Operation) -> bool:
        """Return True for a pointwise loop, or a reduction or scan of more than one element, without side effects."""
        if operation.token or not self.options.fuse:
            return False
        if isinstance(operation, Reduction):
            return any(axis.size != 1 for axis in operation.reduce_axes)
        if isinstance(operation, Scan):
            return self._fits_scratch(operation)
        return isinstance(operation, Pointwise) or is_sum_of_chunks(operation)

    def _fits_scratch(self, scan: Scan) -> bool:
        """Return True for a scan along contiguous rows, each of which fits the scratch arrays of an outer point."""
        if scan.combiner == SORT or scan.scan_axis.size == 1:
            return False
        if any(value.type.layout.strides[scan.dimension] != 1 for value in scan.results):
            return False
        limits = FusionLimits.of(self.context.machine(_device(scan)), self.options)
        return 0 < row_bytes((scan,), self.graph.symbols) <= limits.scratch

    def _start(self, operation: Operation) -> FusionCandidate:
        """Start a candidate with the operation alone."""
        number = self.order.add()
        device = _device(operation)
        if isinstance(operation, Fusible) and (
            self._fusable(operation) or not isinstance(operation, Scan | Scatter)
        ):
            candidate = new_candidate(operation, number, device, self.graph.symbols)
            candidate.size = body_size(*operation.bodies)
            candidate.reads.update(operation.reads)
        else:
            candidate = FusionCandidate(
                number, device, members=[ScheduledNode(operation, 0, False, (), (), ())]
            )
        candidate.fusible = self._fusable(operation) and not isinstance(operation, Scatter)
        candidate.is_matmul = self._is_contraction(operation)
        self.candidates[number] = candidate
        return candidate

    def _is_contraction(self, operation: Operation) -> bool:
        """Return True for a sum that the device computes in tiles, which only its epilogue is fused with."""
        machine = self.context.machine(_device(operation))
        tiled = machine is not None and is_tiled_convolution(operation, machine)
        return tiled or is_matmul(operation, self.gpu_kinds)

    # --- fusion of one operation -------------------------------------------------------------------------------------

    def _candidates(self, operation: Operation) -> list[tuple[FusionCandidate, Reason, int]]:
        """Return groups to try, producers first, with the reason and the bytes that need not be read again."""
        common: dict[int, dict[str, int]] = {}
        producers: set[int] = set()
        for name in operation.reads:
            stake = estimate(type_bytes(self.values[name].type), self.graph.symbols)
            recent = self.readers.get(name, [])
            partners = {self.order.find(n) for n in recent[max(len(recent) - self.options.siblings, 0) :]}
            if name in self.needs.owner:
                producers.add(self.order.find(self.needs.owner[name]))
                partners.add(self.order.find(self.needs.owner[name]))
            for number in partners:
                common.setdefault(number, {})[name] = stake
        stakes = {number: sum(names.values()) for number, names in common.items()}
        # Only the epilogue of a matmul can use its result in registers, so matmuls come first.
        ranked = sorted(
            stakes, key=lambda n: (n not in producers, not self.candidates[n].is_matmul, -stakes[n], -n)
        )
        return [
            (self.candidates[n], reasons.FUSE_PRODUCER if n in producers else reasons.FUSE_SIBLING, stakes[n])
            for n in ranked
            if self.candidates[n].fusible
        ]

    def _worthwhile(self, operation: Operation, reason: Reason, stake: int) -> bool:
        """Return False for two large siblings with few common bytes, which run better as two kernels with fewer
        streams. A loop that sums rows itself belongs into the kernel whose tiles have them."""
        if reason is reasons.FUSE_PRODUCER or (
            isinstance(operation, Pointwise) and has_nested_reductions(operation)
        ):
            return True
        names = (*operation.reads, *(value.name for value in operation.results))
        moved = sum(estimate(type_bytes(self.values[name].type), self.graph.symbols) for name in names)
        return self.costs.fuses_siblings(moved, stake)

    def _fuse_any(self, operation: Operation, needed: set[int]) -> FusionCandidate | None:
        """Fuse the operation into the first candidate that is legal and worthwhile; None where there is none."""
        assert isinstance(operation, Fusible)
        candidates = self._candidates(operation)
        if self._is_contraction(operation):
            candidates = [
                each for each in candidates if each[0].is_matmul and has_nested_reductions(operation)
            ]
        size = body_size(*operation.bodies)
        for candidate, reason, stake in candidates:
            worthwhile = self._worthwhile(operation, reason, stake)
            sibling = reason is reasons.FUSE_SIBLING
            fused = (
                self._try(candidate, operation, needed, size, sibling)
                if worthwhile
                else reasons.REFUSE_TRAFFIC
            )
            if isinstance(fused, Reason):
                self.merger.note(candidate, operation.name, "refuse", fused, stake)
                continue
            if not self.merger.allows(candidate, operation.name):
                return None
            fused.apply(candidate)
            candidate.size += size
            candidate.reads.update(operation.reads)
            self.merger.note(candidate, operation.name, "fuse", reason, stake)
            return candidate
        return None

    def _try(
        self,
        candidate: FusionCandidate,
        operation: Fusible,
        needed: set[int],
        size: int,
        sibling: bool,
    ) -> FusedCandidate | Reason:
        """Return the candidate with the operation fused, or the reason against it."""
        if candidate.device != _device(operation):
            return reasons.REFUSE_DEVICE
        if self.order.between(candidate.number, needed):
            return reasons.REFUSE_ORDER
        limits = self.merger.limits(candidate, operation)
        if candidate.size + size > limits.statements:
            return reasons.REFUSE_SIZE
        if len(candidate.reads.union(operation.reads)) > BUFFERS:
            return reasons.REFUSE_BUFFERS
        symbols, roots = self.graph.symbols, self.needs.roots
        return try_fuse(candidate, operation, symbols, roots, limits, sibling=sibling)

    # --- merging groups --------------------------------------------------------------------------------

    def _absorb(self, target: FusionCandidate, operation: Operation) -> None:
        """Merge other producers of the operation into its group where that is legal."""
        for name in operation.reads:
            if name not in self.needs.owner:
                continue
            other = self.candidates[self.order.find(self.needs.owner[name])]
            if other is target or not other.fusible or other.device != target.device or target.is_matmul:
                continue
            if self.merger.fits(target, other) and self._adjacent(other.number, target.number):
                stake = estimate(type_bytes(self.values[name].type), self.graph.symbols)
                self.merger.merge(target, other, stake, reasons.FUSE_PRODUCER)

    def _adjacent(self, first: int, second: int) -> bool:
        """Return True when no group must run between two groups, nor the second before the first."""
        return not self.order.before(second, first) and not self.order.between(
            first, self.order.parents(second)
        )


def _device(operation: Operation) -> Device:
    """Return the device of an operation's results."""
    return operation.results[0].type.device if operation.results else CPU
