"""Lists of loops on a GPU: those that have nothing to do with one another share what a launch costs.

An optimiser's step over a list of parameters is as many loops as there are parameters. Each moves its bytes in a few
microseconds, and as long takes a launch: to fill the processors, and to drain them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from litz_ir.device import Device
from litz_ir.loops import LoopGraph
from litz_ir.passes import PassContext
from litz_ir.symbols import Size
from litz_scheduler.cost import estimate, type_bytes
from litz_scheduler.draft import Draft, sizes_of
from litz_scheduler.options import SchedulerOptions

BUFFERS = 48
"""The values that a pack may read and write: a thread holds an address for each, and an element of each result."""

TOGETHER = 1 << 6
"""By how much less a reduction may move to be packed: what its loops hold in registers they hold at the same time."""

_Points = tuple[Device, tuple[Size, ...], tuple[Size, ...]]
Merge = Callable[[Draft, Draft], bool]
"""``merge(home, other)`` puts ``other`` into ``home``, or changes nothing and says so."""


class Packer:
    """Chooses the groups that become one: loops over the same points, between which no call stands, and each of which
    moves too little for a launch of its own."""

    def __init__(
        self, graph: LoopGraph, context: PassContext, options: SchedulerOptions, merge: Merge
    ) -> None:
        self._values = graph.values()
        self._symbols = graph.symbols
        self._context = context
        self._most = options.packed_bytes
        self._beside = min(options.mixed_bytes, options.beside_bytes)
        self._merge = merge

    def pack(self, drafts: Iterable[Draft]) -> None:
        """Merge, among ``drafts`` in the order that they run, those that should be one."""
        packs: dict[_Points, Draft] = {}
        for draft in drafts:
            if not draft.loops:
                # What a call separates stays apart: to run the earlier later would keep its inputs alive meanwhile.
                packs.clear()
            elif self._wants_company(draft):
                key = (draft.device, sizes_of(draft.outer), sizes_of(draft.inner))
                known = packs.get(key)
                if known is not None and len(_moved(known)) + len(_moved(draft)) <= BUFFERS:
                    self._merge(draft, known)
                packs[key] = draft

    def _wants_company(self, draft: Draft) -> bool:
        """True for a loop on a GPU whose launch takes a good part of its time. The smallest ones run side by side where
        they can: a program that has several of them takes as long as all of them."""
        machine = self._context.machine(draft.device)
        if machine is None or not machine.processors or not draft.outer:
            return False
        sizes = (type_bytes(self._values[name].type) for name in _moved(draft))
        moved = sum(estimate(size, self._symbols) for size in sizes)
        if machine.beside > 1 and moved <= self._beside:
            return False
        return moved * (TOGETHER if draft.inner else 1) <= self._most


def _moved(draft: Draft) -> set[str]:
    """The values that a group reads from memory and writes there."""
    defined = {value.name: value for seen in draft.members for value in seen.operation.results}
    stored = {n for n, value in defined.items() if value.replaces is not None or n not in draft.reads}
    return (draft.reads - defined.keys()) | stored
