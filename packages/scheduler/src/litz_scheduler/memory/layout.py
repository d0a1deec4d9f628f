"""Where homes lie: in storages of their own, one after another in one, or side by side in an arena."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from litz_ir.device import Device
from litz_ir.symbols import Size
from litz_scheduler.memory.arena import Span, pack
from litz_scheduler.memory.homes import Claim, Home
from litz_scheduler.memory.runs import Runs

NEAR = 8
"""Dead memory waits at most this many steps for a value of its size; then the host gets it back."""

ARENA_LIMIT = 31 << 20
"""The most bytes of an arena. The C library keeps blocks of less than 32 MB for the next call; larger ones come with a
page fault per 4 KB each time."""

Scope = Literal["graph", "run", "none"]
"""Whose memory one arena holds."""


@dataclass(slots=True, kw_only=True)
class Area(Claim):
    """A storage to be."""

    name: str
    device: Device


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a home lies, and why."""

    area: Area
    offset: int
    reason: str


@dataclass(slots=True)
class Layout:
    """Areas, and the spot of each home, in their order."""

    areas: list[Area] = field(default_factory=list)
    spots: list[Spot] = field(default_factory=list)

    def add(self, nbytes: Size, device: Device, first: int, last: int, kept: bool = False) -> Area:
        """A new area."""
        name = f"s{len(self.areas)}"
        self.areas.append(Area(name=name, nbytes=nbytes, device=device, first=first, last=last, kept=kept))
        return self.areas[-1]


def arena_members(homes: Sequence[Home]) -> frozenset[int]:
    """The homes, by number, that may lie in an arena: what only kernels see, of sizes known at compile time, as far as
    one arena of all of them stays within the limit. A tensor made of a part costs the host more than one of its own."""
    found: set[int] = set()
    able: dict[Device, list[int]] = {}
    for number, home in enumerate(homes):
        if not (home.kept or home.seen) and isinstance(home.nbytes, int):
            able.setdefault(home.device, []).append(number)
    for numbers in able.values():
        packing = pack([_span(homes[number]) for number in numbers], ARENA_LIMIT)
        found.update(n for n, offset in zip(numbers, packing.offsets, strict=True) if offset is not None)
    return frozenset(found)


def lay_out(homes: Sequence[Home], members: frozenset[int], runs: Runs, scope: Scope, across: bool) -> Layout:
    """A spot for every home. ``scope`` says what arenas hold the ``members``; memory that died in an earlier run waits
    for a home of its size only where ``across`` says so."""
    layout = Layout()
    shared = _shared(homes, members, runs, scope, layout)
    pool: dict[tuple[Size, Device], list[Area]] = {}
    for number, home in enumerate(homes):
        spot = shared.get(number)
        if spot is None:
            spot = _alone(home, runs, across, layout, pool.setdefault((home.nbytes, home.device), []))
        layout.spots.append(spot)
    return layout


def _shared(
    homes: Sequence[Home], members: frozenset[int], runs: Runs, scope: Scope, layout: Layout
) -> dict[int, Spot]:
    """The spots of the homes that lie in arenas, by number."""
    groups: dict[tuple[int, Device], list[int]] = {}
    for number in sorted(members) if scope != "none" else ():
        home = homes[number]
        run = runs.of[home.first] if scope == "run" else 0
        if scope == "graph" or run == runs.of[home.last]:
            groups.setdefault((run, home.device), []).append(number)
    spots: dict[int, Spot] = {}
    for (_, device), numbers in groups.items():
        if len(numbers) == 1:
            continue
        packing = pack([_span(homes[number]) for number in numbers])
        first = min(homes[number].first for number in numbers)
        last = max(homes[number].last for number in numbers)
        area = layout.add(packing.nbytes, device, first, last)
        for number, offset in zip(numbers, packing.offsets, strict=True):
            assert offset is not None
            spots[number] = Spot(area, offset, "memory.arena")
    return spots


def _span(home: Home) -> Span:
    assert isinstance(home.nbytes, int)
    return Span(home.first, home.last, home.nbytes)


def _alone(home: Home, runs: Runs, across: bool, layout: Layout, pool: list[Area]) -> Spot:
    """A storage that is dead, of the ``pool`` of those of the home's size, else a fresh one."""
    for area in () if home.kept else reversed(pool[-NEAR:]):
        near = across and home.first - area.last <= NEAR
        if area.last < home.first and (near or runs.of[area.last] == runs.of[home.first]):
            area.last = home.last
            return Spot(area, 0, "memory.reuse")
    area = layout.add(home.nbytes, home.device, home.first, home.last, home.kept)
    if not home.kept:
        pool.append(area)
    return Spot(area, 0, "memory.fresh")
