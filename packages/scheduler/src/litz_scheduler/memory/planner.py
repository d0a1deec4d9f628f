"""Memory planning: of the layouts tried, the one with the least modelled peak."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from litz_ir.fused import Decision
from litz_ir.loops import Output
from litz_ir.plan import Allocate, Free, Kernel, Placement, Step, Storage
from litz_ir.symbols import SymbolTable
from litz_scheduler import reasons
from litz_scheduler.analysis.cost import estimate
from litz_scheduler.memory.peak import LiveBlock, live_bytes
from litz_scheduler.memory.runs import LaunchRuns, find_runs
from litz_scheduler.memory.slots import LiveInterval, MayShare, SlotRequests, always_shares, slot_requests
from litz_scheduler.memory.storage_layout import ArenaScope, StorageLayout, arena_members, lay_out_slots

_SCOPES: tuple[ArenaScope, ...] = ("graph", "run", "none")
"""The arena scopes to try, in the order of fewest allocations."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The placement of every value, and the steps with allocations between them."""

    placements: dict[str, Placement]
    """The placement of every buffer."""
    storages: tuple[Storage, ...]
    """The storages to allocate."""
    steps: tuple[Step, ...]
    """The given steps, with allocations and frees between them."""
    decisions: tuple[Decision, ...]
    """The reason for the memory of each value."""
    donated: tuple[str, ...]
    """The donated inputs whose memory is reused."""
    requests: SlotRequests
    """The slots and call results of the given steps."""
    runs: LaunchRuns
    """The runs of the given steps."""
    live_bytes: tuple[int, ...]
    """The most bytes allocated in each run (see :mod:`litz_scheduler.memory.peak`)."""
    bytes_with_donated: tuple[int, ...]
    """The same with the donated inputs, which are freed after their last use."""

    @property
    def peak_with_donated(self) -> int:
        """The most bytes allocated at once, donated inputs included."""
        return max(self.bytes_with_donated, default=0)

    @property
    def peak(self) -> int:
        """The most bytes allocated at once."""
        return max(self.live_bytes, default=0)


def plan_memory(
    steps: Sequence[Step],
    placements: Mapping[str, Placement],
    outputs: tuple[Output, ...],
    kernels: Mapping[str, Kernel],
    symbols: SymbolTable,
    transient: Mapping[int, int],
    tiled: Container[str] = (),
    donated: Collection[str] = (),
    may_share: MayShare = always_shares,
) -> MemoryPlan:
    """Assign memory to every value whose placement is ``UNPLACED``, in the order of the steps.

    ``transient`` gives, by position, the bytes that a step allocates beyond its results while it runs. ``tiled`` has
    the kinds of devices on which the threads of a block compute a tile in common (see ``InPlaceReuse``). The memory
    of ``donated`` inputs may be reused after their last use. ``may_share`` is asked once for each value that needs
    memory, in the order in which they are written, whether it may share memory with earlier ones.
    """
    requests = slot_requests(steps, placements, outputs, kernels, tiled, donated, may_share)
    found = _Planner(steps, requests, symbols, transient).run()
    reused = {name for _, name in requests.reused}
    return replace(found, donated=tuple(name for name in donated if name in reused))


class _Planner:
    """Search for the layout of least peak, for one sequence of steps."""

    def __init__(
        self,
        steps: Sequence[Step],
        requests: SlotRequests,
        symbols: SymbolTable,
        transient: Mapping[int, int],
    ) -> None:
        self.steps = steps
        self.requests = requests
        self.symbols = symbols
        self.members = arena_members(requests.slots)
        self.runs = self._find_runs()
        self.transient = [(self.runs.of[position], nbytes) for position, nbytes in transient.items()]

    def run(self) -> MemoryPlan:
        """Return the layout of least peak; of equal ones that with fewest allocations."""
        slots, members, runs = self.requests.slots, self.members, self.runs
        layouts = [
            lay_out_slots(slots, members, runs, scope, across_runs)
            for scope in (_SCOPES if members else _SCOPES[-1:])
            for across_runs in (True, False)
        ]
        if members:
            layouts += [
                lay_out_slots(slots, members, runs, scope, True, in_results=True) for scope in _SCOPES[:-1]
            ]
        live = [self._live_bytes(layout) for layout in layouts]
        donated = self.requests.donated
        all_live = [self._live_bytes(layout, donated) for layout in layouts] if donated else live
        peaks = [
            (max(all_, default=0), max(own, default=0)) for all_, own in zip(all_live, live, strict=True)
        ]
        best = peaks.index(min(peaks))
        chosen = layouts[best]
        decisions = tuple(self._settle(chosen))
        storages = tuple(Storage(area.name, area.nbytes, area.device) for area in chosen.areas)
        return MemoryPlan(
            self.requests.placements, storages, tuple(self._steps(chosen)), decisions, (),
            self.requests, self.runs, live[best], all_live[best],
        )  # fmt: skip

    def _find_runs(self) -> LaunchRuns:
        """Return the runs of launches that result when all arena members are in arenas."""
        alone = [slot for number, slot in enumerate(self.requests.slots) if number not in self.members]
        freed: dict[int, int] = {}
        intervals: tuple[LiveInterval, ...] = (*alone, *self.requests.results)
        for each in intervals:
            if not each.escapes:
                freed[each.last] = freed.get(each.last, 0) + estimate(each.nbytes, self.symbols)
        allocating = {slot.first for slot in alone}
        return find_runs(self.steps, self.requests.placements, allocating, freed)

    def _live_bytes(self, layout: StorageLayout, inputs: Sequence[LiveInterval] = ()) -> tuple[int, ...]:
        """Return the most bytes allocated in each run with this layout, and with ``inputs`` that it frees."""
        of = self.runs.of
        intervals: tuple[LiveInterval, ...] = (*layout.areas, *self.requests.results, *inputs)
        blocks = [
            LiveBlock(each.nbytes, of[each.first], None if each.escapes else of[each.last])
            for each in intervals
        ]
        return live_bytes(len(self.runs), blocks, self.transient, self.symbols)

    def _settle(self, layout: StorageLayout) -> Iterator[Decision]:
        """Enter the chosen offsets in the placements, and yield the reason for each."""
        placements = self.requests.placements
        for slot, placed in zip(self.requests.slots, layout.offsets, strict=True):
            note = f"in {placed.area.name}"
            if placed.reason is reasons.MEMORY_ARENA:
                note += f" at {placed.offset}"
            for name in slot.values:
                placements[name] = replace(placements[name], storage=placed.area.name, offset=placed.offset)
                reason = placed.reason if name == slot.values[0] else reasons.MEMORY_INPLACE
                yield Decision("memory", name, "allocate", reason, slot.nbytes, note)
        for name, over in self.requests.reused:
            nbytes = self.requests.placements[name].nbytes
            yield Decision("memory", name, "allocate", reasons.MEMORY_INPLACE, nbytes, f"in %{over}")

    def _steps(self, layout: StorageLayout) -> Iterator[Step]:
        """Yield the steps, with allocations before each run and frees after it."""
        of = self.runs.of
        allocated: dict[int, list[Step]] = {}
        freed: dict[int, list[Step]] = {}
        for area in layout.areas:
            allocated.setdefault(of[area.first], []).append(Allocate(area.name))
            if not area.escapes:
                freed.setdefault(of[area.last], []).append(Free(area.name))
        for result in self.requests.results:
            if not result.escapes:
                freed.setdefault(of[result.last], []).append(Free(result.name))
        for run, (start, end) in enumerate(pairwise((*self.runs.starts, len(self.steps)))):
            yield from allocated.get(run, ())
            yield from self.steps[start:end]
            yield from freed.get(run, ())
