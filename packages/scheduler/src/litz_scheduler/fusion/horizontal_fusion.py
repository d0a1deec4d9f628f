"""Horizontal fusion of loops over equal iteration spaces on a GPU, as for a list of tensors (foreach).

An optimiser's step over a list of parameters is one loop per parameter. Each moves its bytes in a few microseconds,
and its launch takes as long: to fill the SMs and to drain them.
"""

from __future__ import annotations

from dataclasses import dataclass

from litz_ir.device import Device
from litz_ir.passes import PassContext
from litz_ir.symbols import Size
from litz_scheduler import reasons
from litz_scheduler.analysis.cost import estimate, type_bytes
from litz_scheduler.analysis.fusion_candidate import FusionCandidate, sizes_of
from litz_scheduler.fusion.groups import FusionGroups, Merger
from litz_scheduler.legality.matmul import gpu_kinds
from litz_scheduler.options import SchedulerOptions

_BUFFERS = 48
"""Values that a fused group may read and write: a thread holds an address of each, and an element of each result."""

_REDUCTION_SHARE = 1 << 6
"""Reductions are fused only up to 1/64 of ``foreach_bytes``: fused reductions hold all their registers at the same
time."""

_Points = tuple[Device, tuple[Size, ...], tuple[Size, ...]]
"""Device, and sizes of outer and inner axes."""


@dataclass(frozen=True, slots=True)
class HorizontalFusion:
    """Fuse loops over equal iteration spaces that move too few bytes for a launch each.

    Loops with a call between them are not fused.
    """

    options: SchedulerOptions
    name: str = "horizontal-fusion"
    ulp: int = 0

    def apply(self, data: FusionGroups, context: PassContext) -> FusionGroups:
        """Return the groups after horizontal fusion; the given ones where there is no GPU."""
        if not self.options.fuse or not gpu_kinds(context):
            return data
        groups = data.copy()
        _Fusion(groups, context, self.options).run()
        return groups


class _Fusion:
    """Horizontal fusion of one set of groups, in place."""

    def __init__(self, groups: FusionGroups, context: PassContext, options: SchedulerOptions) -> None:
        self._groups = groups
        self._values = groups.graph.values()
        self._symbols = groups.graph.symbols
        self._context = context
        self._max_bytes = options.foreach_bytes
        self._subkernel_bytes = min(options.horizontal_fusion_bytes, options.isomorphic_fusion_bytes)
        self._merger = Merger(groups, context, options)

    def run(self) -> None:
        """Merge groups in the order that they run."""
        known: dict[_Points, FusionCandidate] = {}
        for candidate in self._groups.ordered():
            if not candidate.fusible:
                # Loops before and after a call stay separate: a later run of the first would keep its inputs live.
                known.clear()
            elif self._is_small(candidate):
                key = (candidate.device, sizes_of(candidate.outer), sizes_of(candidate.inner))
                latest = known.get(key)
                if latest is not None and len(_moved(latest)) + len(_moved(candidate)) <= _BUFFERS:
                    self._merge(candidate, latest)
                known[key] = candidate

    def _merge(self, target: FusionCandidate, other: FusionCandidate) -> bool:
        """Merge two groups where neither depends on the other and a kernel may be that large."""
        other_number, number, order = other.number, target.number, self._groups.order
        if target.is_matmul or other.is_matmul:
            return False
        if order.before(other_number, number) or order.before(number, other_number):
            return False
        return self._merger.fits(target, other) and self._merger.merge(target, other, 0, reasons.FUSE_FOREACH)

    def _is_small(self, candidate: FusionCandidate) -> bool:
        """Return True for a loop on a GPU whose launch takes a large part of its time.

        The smallest loops are left to horizontal fusion of launches where the device supports it, which runs them in
        parallel: a thread block of a foreach kernel runs all its loops one after another.
        """
        machine = self._context.machine(candidate.device)
        if machine is None or not machine.is_gpu or not candidate.outer:
            return False
        sizes = (type_bytes(self._values[name].type) for name in _moved(candidate))
        moved = sum(estimate(size, self._symbols) for size in sizes)
        if machine.max_subkernels > 1 and moved <= self._subkernel_bytes:
            return False
        return moved * (_REDUCTION_SHARE if candidate.inner else 1) <= self._max_bytes


def _moved(candidate: FusionCandidate) -> set[str]:
    """Return the values that a group reads from memory and writes to it."""
    defined = {value.name: value for node in candidate.members for value in node.operation.results}
    stored = {n for n, value in defined.items() if value.replaces is not None or n not in candidate.reads}
    return (candidate.reads - defined.keys()) | stored
