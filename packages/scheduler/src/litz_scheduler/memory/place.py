"""Places values in storages: over a dying input where a kernel allows it, else in dead memory, else in fresh memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from litz_ir.device import Device
from litz_ir.fused.decision import Decision
from litz_ir.loops.nodes import Output
from litz_ir.plan.kernel import Kernel
from litz_ir.plan.program import Allocate, Free, Placement, Step, Storage
from litz_ir.symbols.table import SymbolTable
from litz_ir.symbols.term import Size
from litz_scheduler.cost.traffic import estimate
from litz_scheduler.memory.homes import Claim, Demand, Home, demand_of
from litz_scheduler.memory.peak import Block, peak
from litz_scheduler.memory.runs import Runs, find_runs

NEAR = 8
"""Dead memory waits at most this many steps for a value of its size; then the host gets it back."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Every placement, the storages, the steps with allocation in between, the modelled peak in bytes (see
    ``litz_scheduler.memory.peak``), and why each value is where it is."""

    placements: dict[str, Placement]
    storages: tuple[Storage, ...]
    steps: tuple[Step, ...]
    peak: int
    decisions: tuple[Decision, ...]


def place(
    steps: Sequence[Step],
    placements: Mapping[str, Placement],
    outputs: tuple[Output, ...],
    kernels: Mapping[str, Kernel],
    symbols: SymbolTable,
    transient: Mapping[int, int],
) -> MemoryPlan:
    """Give memory to every value whose placement says ``UNPLACED``, in the order of the steps. ``transient`` gives, by
    position, the bytes that a step takes beyond its results while it runs."""
    demand = demand_of(steps, placements, outputs, kernels)
    return _Placer(steps, demand, symbols, transient).run()


@dataclass(slots=True, kw_only=True)
class _Area(Claim):
    """A storage to be."""

    name: str
    device: Device


@dataclass(slots=True)
class _Layout:
    """Areas, and for each home its area and the reason for it."""

    areas: list[_Area] = field(default_factory=list)
    where: list[tuple[_Area, str]] = field(default_factory=list)

    def fresh(self, home: Home) -> _Area:
        """An area for one home."""
        area = _Area(
            name=f"s{len(self.areas)}", nbytes=home.nbytes, device=home.device, first=home.first, last=home.last,
            kept=home.kept,
        )  # fmt: skip
        self.areas.append(area)
        return area


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
        self.runs = self._find_runs()
        self.transient = [(self.runs.of[position], nbytes) for position, nbytes in transient.items()]

    def run(self) -> MemoryPlan:
        """The layout of least peak; of equal ones that which waits longest, which allocates least."""
        layouts = [self._separate(across) for across in (True, False)]
        peaks = [self._peak(layout) for layout in layouts]
        least = min(peaks)
        chosen = layouts[peaks.index(least)]
        decisions = tuple(self._settle(chosen))
        storages = tuple(Storage(area.name, area.nbytes, area.device) for area in chosen.areas)
        return MemoryPlan(self.demand.placements, storages, tuple(self._steps(chosen)), least, decisions)

    def _find_runs(self) -> Runs:
        dying: dict[int, int] = {}
        claims: tuple[Claim, ...] = (*self.demand.homes, *self.demand.results)
        for each in claims:
            if not each.kept:
                dying[each.last] = dying.get(each.last, 0) + estimate(each.nbytes, self.symbols)
        return find_runs(self.steps, {home.first for home in self.demand.homes}, dying)

    def _separate(self, across: bool) -> _Layout:
        """Each home in a storage that is dead, if one of its size is, else in a fresh one. What died in an earlier run
        waits for it only where ``across`` says so."""
        layout = _Layout()
        pool: dict[tuple[Size, Device], list[_Area]] = {}
        for home in self.demand.homes:
            waiting = pool.setdefault((home.nbytes, home.device), [])
            dead = [
                area for area in waiting[-NEAR:] if area.last < home.first and self._near(area, home, across)
            ]
            if home.kept or not dead:
                area, reason = layout.fresh(home), "memory.fresh"
            else:
                area, reason = dead[-1], "memory.reuse"
                waiting.remove(area)
                area.last = home.last
            layout.where.append((area, reason))
            if not home.kept:
                waiting.append(area)
        return layout

    def _near(self, area: _Area, home: Home, across: bool) -> bool:
        if self.runs.of[area.last] == self.runs.of[home.first]:
            return True
        return across and home.first - area.last <= NEAR

    def _peak(self, layout: _Layout) -> int:
        of = self.runs.of
        claims: tuple[Claim, ...] = (*layout.areas, *self.demand.results)
        blocks = [Block(each.nbytes, of[each.first], None if each.kept else of[each.last]) for each in claims]
        return peak(len(self.runs), blocks, self.transient, self.symbols)

    def _settle(self, layout: _Layout) -> Iterator[Decision]:
        """Enter where values are, and say why."""
        placements = self.demand.placements
        for home, (area, reason) in zip(self.demand.homes, layout.where, strict=True):
            for name in home.values:
                placements[name] = replace(placements[name], storage=area.name)
                why = reason if name == home.values[0] else "memory.inplace"
                yield Decision("memory", name, "place", why, home.nbytes, f"in {area.name}")
        for name, over in self.demand.taken:
            nbytes = self.demand.nbytes(name)
            yield Decision("memory", name, "place", "memory.inplace", nbytes, f"in %{over}")

    def _steps(self, layout: _Layout) -> Iterator[Step]:
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
