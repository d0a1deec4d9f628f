"""Places values: in the layout, of those that are tried, that holds least at once."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from litz_ir.fused import Decision
from litz_ir.loops import Output
from litz_ir.plan import Allocate, Free, Kernel, Placement, Step, Storage
from litz_ir.symbols import SymbolTable
from litz_scheduler.cost import estimate
from litz_scheduler.memory.peak import LiveBlock, live_bytes
from litz_scheduler.memory.runs import LaunchRuns, find_runs
from litz_scheduler.memory.slots import LiveInterval, SlotRequests, slot_requests
from litz_scheduler.memory.storage_layout import ArenaScope, StorageLayout, arena_members, lay_out_slots

SCOPES: tuple[ArenaScope, ...] = ("graph", "run", "none")
"""Arenas that are tried: what allocates least first."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Every placement, the storages, the steps with allocation in between, why each value is where it is, and the
    donated inputs that are written over. Of the steps that were placed: what takes memory, their runs, and the bytes
    held in each of these (see ``litz_scheduler.memory.peak``)."""

    placements: dict[str, Placement]
    storages: tuple[Storage, ...]
    steps: tuple[Step, ...]
    decisions: tuple[Decision, ...]
    donated: tuple[str, ...]
    requests: SlotRequests
    runs: LaunchRuns
    live_bytes: tuple[int, ...]

    @property
    def peak(self) -> int:
        """The most bytes held at once."""
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
) -> MemoryPlan:
    """Give memory to every value whose placement says ``UNPLACED``, in the order of the steps. ``transient`` gives, by
    position, the bytes that a step takes beyond its results while it runs; ``tiled`` has the kinds of devices whose
    threads have tiles together (see ``InPlaceReuse``). Over inputs that are ``donated`` values may be written once all
    that reads them has run."""
    demand = slot_requests(steps, placements, outputs, kernels, tiled, donated)
    found = _Placer(steps, demand, symbols, transient).run()
    over = {name for _, name in demand.reused}
    return replace(found, donated=tuple(name for name in donated if name in over))


class _Placer:
    def __init__(
        self,
        steps: Sequence[Step],
        demand: SlotRequests,
        symbols: SymbolTable,
        transient: Mapping[int, int],
    ) -> None:
        self.steps = steps
        self.demand = demand
        self.symbols = symbols
        self.members = arena_members(demand.slots)
        self.runs = self._find_runs()
        self.transient = [(self.runs.of[position], nbytes) for position, nbytes in transient.items()]

    def run(self) -> MemoryPlan:
        """The layout of least peak; of equal ones that which allocates least."""
        layouts = [
            lay_out_slots(self.demand.slots, self.members, self.runs, scope, across)
            for scope in (SCOPES if self.members else SCOPES[-1:])
            for across in (True, False)
        ]
        most = [self._held(layout) for layout in layouts]
        peaks = [max(each, default=0) for each in most]
        best = peaks.index(min(peaks))
        chosen = layouts[best]
        decisions = tuple(self._settle(chosen))
        storages = tuple(Storage(area.name, area.nbytes, area.device) for area in chosen.areas)
        return MemoryPlan(
            self.demand.placements, storages, tuple(self._steps(chosen)), decisions, (),
            self.demand, self.runs, most[best],
        )  # fmt: skip

    def _find_runs(self) -> LaunchRuns:
        """The runs of kernels, as they are when arenas hold what fits them."""
        alone = [home for number, home in enumerate(self.demand.slots) if number not in self.members]
        dying: dict[int, int] = {}
        claims: tuple[LiveInterval, ...] = (*alone, *self.demand.results)
        for each in claims:
            if not each.escapes:
                dying[each.last] = dying.get(each.last, 0) + estimate(each.nbytes, self.symbols)
        taking = {home.first for home in alone}
        return find_runs(self.steps, self.demand.placements, taking, dying)

    def _held(self, layout: StorageLayout) -> tuple[int, ...]:
        of = self.runs.of
        claims: tuple[LiveInterval, ...] = (*layout.areas, *self.demand.results)
        blocks = [
            LiveBlock(each.nbytes, of[each.first], None if each.escapes else of[each.last]) for each in claims
        ]
        return live_bytes(len(self.runs), blocks, self.transient, self.symbols)

    def _settle(self, layout: StorageLayout) -> Iterator[Decision]:
        """Enter where values are, and say why."""
        placements = self.demand.placements
        for home, spot in zip(self.demand.slots, layout.offsets, strict=True):
            where = f"in {spot.area.name}"
            if spot.reason == "memory.arena":
                where += f" at {spot.offset}"
            for name in home.values:
                placements[name] = replace(placements[name], storage=spot.area.name, offset=spot.offset)
                why = spot.reason if name == home.values[0] else "memory.inplace"
                yield Decision("memory", name, "allocate", why, home.nbytes, where)
        for name, over in self.demand.reused:
            nbytes = self.demand.nbytes(name)
            yield Decision("memory", name, "allocate", "memory.inplace", nbytes, f"in %{over}")

    def _steps(self, layout: StorageLayout) -> Iterator[Step]:
        """The steps, memory taken before each run and given back after it."""
        of = self.runs.of
        taken: dict[int, list[Step]] = {}
        given: dict[int, list[Step]] = {}
        for area in layout.areas:
            taken.setdefault(of[area.first], []).append(Allocate(area.name))
            if not area.escapes:
                given.setdefault(of[area.last], []).append(Free(area.name))
        for result in self.demand.results:
            if not result.escapes:
                given.setdefault(of[result.last], []).append(Free(result.name))
        for run, (start, end) in enumerate(pairwise((*self.runs.starts, len(self.steps)))):
            yield from taken.get(run, ())
            yield from self.steps[start:end]
            yield from given.get(run, ())
