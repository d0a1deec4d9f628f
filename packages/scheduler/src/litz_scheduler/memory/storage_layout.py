"""Where homes lie: in storages of their own, one after another in one, or side by side in an arena."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from litz_ir.device import Device
from litz_ir.symbols import Size
from litz_scheduler.memory.arena import ArenaSpan, assign_offsets
from litz_scheduler.memory.runs import LaunchRuns
from litz_scheduler.memory.slots import LiveInterval, Slot

REUSE_DISTANCE = 8
"""Dead memory waits at most this many steps for a value of its size; then the host gets it back."""

ARENA_LIMIT = 31 << 20
"""The most bytes of an arena. The C library keeps blocks of less than 32 MB for the next call; larger ones come with a
page fault per 4 KB each time."""

ArenaScope = Literal["graph", "run", "none"]
"""Whose memory one arena holds."""


@dataclass(slots=True, kw_only=True)
class StorageArea(LiveInterval):
    """A storage to be."""

    name: str
    device: Device


@dataclass(frozen=True, slots=True)
class SlotOffset:
    """Where a home lies, and why."""

    area: StorageArea
    offset: int
    reason: str


@dataclass(slots=True)
class StorageLayout:
    """Areas, and the spot of each home, in their order."""

    areas: list[StorageArea] = field(default_factory=list)
    offsets: list[SlotOffset] = field(default_factory=list)

    def add(self, nbytes: Size, device: Device, first: int, last: int, kept: bool = False) -> StorageArea:
        """A new area."""
        name = f"s{len(self.areas)}"
        self.areas.append(
            StorageArea(name=name, nbytes=nbytes, device=device, first=first, last=last, escapes=kept)
        )
        return self.areas[-1]


def arena_members(homes: Sequence[Slot]) -> frozenset[int]:
    """The homes, by number, that may lie in an arena: what only kernels see, of sizes known at compile time, as far as
    one arena of all of them stays within the limit. A tensor made of a part costs the host more than one of its own."""
    found: set[int] = set()
    able: dict[Device, list[int]] = {}
    for number, home in enumerate(homes):
        if not (home.escapes or home.host_visible) and isinstance(home.nbytes, int):
            able.setdefault(home.device, []).append(number)
    for numbers in able.values():
        packing = assign_offsets([_span(homes[number]) for number in numbers], ARENA_LIMIT)
        found.update(n for n, offset in zip(numbers, packing.offsets, strict=True) if offset is not None)
    return frozenset(found)


def lay_out_slots(
    homes: Sequence[Slot], members: frozenset[int], runs: LaunchRuns, scope: ArenaScope, across: bool
) -> StorageLayout:
    """A spot for every home. ``scope`` says what arenas hold the ``members``; memory that died in an earlier run waits
    for a home of its size only where ``across`` says so."""
    layout = StorageLayout()
    shared = _shared(homes, members, runs, scope, layout)
    pool: dict[tuple[Size, Device], list[StorageArea]] = {}
    for number, home in enumerate(homes):
        spot = shared.get(number)
        if spot is None:
            spot = _alone(home, runs, across, layout, pool.setdefault((home.nbytes, home.device), []))
        layout.offsets.append(spot)
    return layout


def _shared(
    homes: Sequence[Slot], members: frozenset[int], runs: LaunchRuns, scope: ArenaScope, layout: StorageLayout
) -> dict[int, SlotOffset]:
    """The spots of the homes that lie in arenas, by number."""
    groups: dict[tuple[int, Device], list[int]] = {}
    for number in sorted(members) if scope != "none" else ():
        home = homes[number]
        run = runs.of[home.first] if scope == "run" else 0
        if scope == "graph" or run == runs.of[home.last]:
            groups.setdefault((run, home.device), []).append(number)
    spots: dict[int, SlotOffset] = {}
    for (_, device), numbers in groups.items():
        if len(numbers) == 1:
            continue
        packing = assign_offsets([_span(homes[number]) for number in numbers])
        first = min(homes[number].first for number in numbers)
        last = max(homes[number].last for number in numbers)
        area = layout.add(packing.nbytes, device, first, last)
        for number, offset in zip(numbers, packing.offsets, strict=True):
            assert offset is not None
            spots[number] = SlotOffset(area, offset, "memory.arena")
    return spots


def _span(home: Slot) -> ArenaSpan:
    assert isinstance(home.nbytes, int)
    return ArenaSpan(home.first, home.last, home.nbytes)


def _alone(
    home: Slot, runs: LaunchRuns, across: bool, layout: StorageLayout, pool: list[StorageArea]
) -> SlotOffset:
    """A storage that is dead, of the ``pool`` of those of the home's size, else a fresh one."""
    for area in () if home.escapes else reversed(pool[-REUSE_DISTANCE:]):
        near = across and home.first - area.last <= REUSE_DISTANCE
        if area.last < home.first and (near or runs.of[area.last] == runs.of[home.first]):
            area.last = home.last
            return SlotOffset(area, 0, "memory.reuse")
    area = layout.add(home.nbytes, home.device, home.first, home.last, home.escapes)
    if not home.escapes:
        pool.append(area)
    return SlotOffset(area, 0, "memory.fresh")
