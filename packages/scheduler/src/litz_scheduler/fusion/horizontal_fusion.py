"""Horizontal fusion of loops over the same points on a GPU: those of a list share what a launch costs.

An optimiser's step over a list of parameters is as many loops as there are parameters. Each moves its bytes in a few
microseconds, and as long takes a launch: to fill the processors, and to drain them again.
"""

from __future__ import annotations

from dataclasses import dataclass

from litz_ir.device import Device
from litz_ir.passes import PassContext
from litz_ir.symbols import Size
from litz_scheduler.cost import estimate, type_bytes
from litz_scheduler.fusion.groups import FusionGroups, Merger
from litz_scheduler.fusion_candidate import FusionCandidate, sizes_of
from litz_scheduler.legality.matmul import gpu_kinds
from litz_scheduler.options import SchedulerOptions

BUFFERS = 48
"""The values that a fused group may read and write: a thread holds an address for each, and an element of each
result."""

REDUCTION_SHARE = 1 << 6
"""By how much less a reduction may move to be fused: what its loops hold in registers they hold at the same time."""

_Points = tuple[Device, tuple[Size, ...], tuple[Size, ...]]


@dataclass(frozen=True, slots=True)
class HorizontalFusion:
    """Make one group of loops over the same points, between which no call stands, and each of which moves too little
    for a launch of its own."""

    options: SchedulerOptions
    name: str = "horizontal-fusion"
    ulp: int = 0

    def apply(self, data: FusionGroups, context: PassContext) -> FusionGroups:
        """The groups with those in one that should be; themselves where no device has blocks."""
        if not self.options.fuse or not gpu_kinds(context):
            return data
        groups = data.copy()
        _Fusion(groups, context, self.options).run()
        return groups


class _Fusion:
    def __init__(self, groups: FusionGroups, context: PassContext, options: SchedulerOptions) -> None:
        self._groups = groups
        self._values = groups.graph.values()
        self._symbols = groups.graph.symbols
        self._context = context
        self._most = options.foreach_bytes
        self._beside = min(options.horizontal_fusion_bytes, options.isomorphic_fusion_bytes)
        self._merger = Merger(groups, context, options)

    def run(self) -> None:
        """Merge, in the order that they run, the groups that should be one."""
        known: dict[_Points, FusionCandidate] = {}
        for draft in self._groups.ordered():
            if not draft.fusible:
                # What a call separates stays apart: to run the earlier later would keep its inputs alive meanwhile.
                known.clear()
            elif self._wants_company(draft):
                key = (draft.device, sizes_of(draft.outer), sizes_of(draft.inner))
                latest = known.get(key)
                if latest is not None and len(_moved(latest)) + len(_moved(draft)) <= BUFFERS:
                    self._merge(draft, latest)
                known[key] = draft

    def _merge(self, home: FusionCandidate, other: FusionCandidate) -> bool:
        """Make one of two groups neither of which waits for the other, where a kernel may be that large."""
        first, second, order = other.number, home.number, self._groups.order
        if home.is_matmul or other.is_matmul:
            return False
        if order.before(first, second) or order.before(second, first):
            return False
        return self._merger.fits(home, other) and self._merger.merge(home, other, 0, "fuse.foreach")

    def _wants_company(self, draft: FusionCandidate) -> bool:
        """True for a loop on a GPU whose launch takes a good part of its time. The smallest ones run side by side where
        they can: a program that has several of them takes as long as all of them."""
        machine = self._context.machine(draft.device)
        if machine is None or not machine.sm_count or not draft.outer:
            return False
        sizes = (type_bytes(self._values[name].type) for name in _moved(draft))
        moved = sum(estimate(size, self._symbols) for size in sizes)
        if machine.max_subkernels > 1 and moved <= self._beside:
            return False
        return moved * (REDUCTION_SHARE if draft.inner else 1) <= self._most


def _moved(draft: FusionCandidate) -> set[str]:
    """The values that a group reads from memory and writes there."""
    defined = {value.name: value for seen in draft.members for value in seen.operation.results}
    stored = {n for n, value in defined.items() if value.replaces is not None or n not in draft.reads}
    return (draft.reads - defined.keys()) | stored
