"""Places values: in the layout, of those that are tried, that holds least at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from litz_ir.fused.decision import Decision
from litz_ir.loops.nodes import Output
from litz_ir.plan.kernel import Kernel
from litz_ir.plan.program import Allocate, Free, Placement, Step, Storage
from litz_ir.symbols.table import SymbolTable
from litz_scheduler.cost.traffic import estimate
from litz_scheduler.memory.homes import Claim, Demand, demand_of
from litz_scheduler.memory.layout import Layout, Scope, arena_members, lay_out
from litz_scheduler.memory.peak import Block, peak
from litz_scheduler.memory.runs import Runs, find_runs

SCOPES: tuple[Scope, ...] = ("graph", "run", "none")
"""Arenas that are tried: what allocates least first."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Every placement, the storages, the steps with allocation in between, the modelled peak in bytes (see
    ``litz_scheduler.memory.peak``), why each value is where it is, and the donated inputs that are written over."""

    placements: dict[str, Placement]
    storages: tuple[Storage, ...]
    steps: tuple[Step, ...]
    peak: int
    decisions: tuple[Decision, ...]
    donated: tuple[str, ...]


def place(
    steps: Sequence[Step],
    placements: Mapping[str, Placement],
    outputs: tuple[Output, ...],
    kernels: Mapping[str, Kernel],
    symbols: SymbolTable,
    transient: Mapping[int, int],
    donated: Collection[str] = (),
) -> MemoryPlan:
    """Give memory to every value whose placement says ``UNPLACED``, in the order of the steps. ``transient`` gives, by
    position, the bytes that a step takes beyond its results while it runs. Over inputs that are ``donated`` values may
    be written once all that reads them has run."""
    demand = demand_of(steps, placements, outputs, kernels, donated)
    found = _Placer(steps, demand, symbols, transient).run()
    over = {name for _, name in demand.taken}
    return replace(found, donated=tuple(name for name in donated if name in over))


class _Placer:
    def __init__(
        self,
        steps: Sequence[Step],
        demand: Demand,
        symbols: SymbolTable,
        transient: Mapping[int, int],
    ) -> None:
        self.steps = steps
        self.demand = demand
        self.symbols = symbols
        self.members = arena_members(demand.homes)
        self.runs = self._find_runs()
        self.transient = [(self.runs.of[position], nbytes) for position, nbytes in transient.items()]

    def run(self) -> MemoryPlan:
        """The layout of least peak; of equal ones that which allocates least."""
        layouts = [
            lay_out(self.demand.homes, self.members, self.runs, scope, across)
            for scope in (SCOPES if self.members else SCOPES[-1:])
            for across in (True, False)
        ]
        peaks = [self._peak(layout) for layout in layouts]
        least = min(peaks)
        chosen = layouts[peaks.index(least)]
        decisions = tuple(self._settle(chosen))
        storages = tuple(Storage(area.name, area.nbytes, area.device) for area in chosen.areas)
        return MemoryPlan(self.demand.placements, storages, tuple(self._steps(chosen)), least, decisions, ())

    def _find_runs(self) -> Runs:
        """The runs of kernels, as they are when arenas hold what fits them."""
        alone = [home for number, home in enumerate(self.demand.homes) if number not in self.members]
        dying: dict[int, int] = {}
        claims: tuple[Claim, ...] = (*alone, *self.demand.results)
        for each in claims:
            if not each.kept:
                dying[each.last] = dying.get(each.last, 0) + estimate(each.nbytes, self.symbols)
        taking = {home.first for home in alone}
        return find_runs(self.steps, self.demand.placements, taking, dying)

    def _peak(self, layout: Layout) -> int:
        of = self.runs.of
        claims: tuple[Claim, ...] = (*layout.areas, *self.demand.results)
        blocks = [Block(each.nbytes, of[each.first], None if each.kept else of[each.last]) for each in claims]
        return peak(len(self.runs), blocks, self.transient, self.symbols)

    def _settle(self, layout: Layout) -> Iterator[Decision]:
        """Enter where values are, and say why."""
        placements = self.demand.placements
        for home, spot in zip(self.demand.homes, layout.spots, strict=True):
            where = f"in {spot.area.name}"
            if spot.reason == "memory.arena":
                where += f" at {spot.offset}"
            for name in home.values:
                placements[name] = replace(placements[name], storage=spot.area.name, offset=spot.offset)
                why = spot.reason if name == home.values[0] else "memory.inplace"
                yield Decision("memory", name, "place", why, home.nbytes, where)
        for name, over in self.demand.taken:
            nbytes = self.demand.nbytes(name)
            yield Decision("memory", name, "place", "memory.inplace", nbytes, f"in %{over}")

    def _steps(self, layout: Layout) -> Iterator[Step]:
        """The steps, memory taken before each run and given back after it."""
        of = self.runs.of
        taken: dict[int, list[Step]] = {}
        given: dict[int, list[Step]] = {}
        for area in layout.areas:
            taken.setdefault(of[area.first], []).append(Allocate(area.name))
            if not area.kept:
                given.setdefault(of[area.last], []).append(Free(area.name))
        for result in self.demand.results:
            if not result.kept:
                given.setdefault(of[result.last], []).append(Free(result.name))
        for run, (start, end) in enumerate(pairwise((*self.runs.starts, len(self.steps)))):
            yield from taken.get(run, ())
            yield from self.steps[start:end]
            yield from given.get(run, ())
