"""The storage and offset of each slot: a storage of its own, a reused one, or an arena."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from litz_ir.device import STORAGE_ALIGNMENT, Device
from litz_ir.fused import Reason
from litz_ir.symbols import Size
from litz_scheduler import reasons
from litz_scheduler.memory.arena import ArenaSpan, assign_offsets
from litz_scheduler.memory.runs import LaunchRuns
from litz_scheduler.memory.slots import LiveInterval, Slot

REUSE_DISTANCE = 8
"""Freed memory is kept for a value of equal size for at most this many steps; then the host gets it back."""

_ARENA_LIMIT = 31 << 20
"""The most bytes of an arena (31 MiB).

The C library reuses blocks of less than 32 MB; larger ones cost a page fault per 4 KB at every allocation.
"""

ArenaScope = Literal["graph", "run", "none"]
"""The slots that share an arena: those of the graph, those of one run of launches, or none."""


@dataclass(slots=True, kw_only=True)
class StorageArea(LiveInterval):
    """A storage to allocate, with its live interval."""

    name: str
    """Its name in the plan."""
    device: Device
    """Its device."""


@dataclass(frozen=True, slots=True)
class SlotOffset:
    """The storage and offset of a slot."""

    area: StorageArea
    """The storage."""
    offset: int
    """The offset in bytes."""
    reason: Reason
    """The reason: fresh memory, reused memory, or an arena."""


@dataclass(slots=True)
class StorageLayout:
    """The storages of a plan and the offset of each slot."""

    areas: list[StorageArea] = field(default_factory=list)
    """The storages."""
    offsets: list[SlotOffset] = field(default_factory=list)
    """The offset of each slot, in the order of the slots."""

    def add(self, nbytes: Size, device: Device, first: int, last: int, escapes: bool = False) -> StorageArea:
        """Add and return a storage."""
        name = f"s{len(self.areas)}"
        self.areas.append(
            StorageArea(name=name, nbytes=nbytes, device=device, first=first, last=last, escapes=escapes)
        )
        return self.areas[-1]


def arena_members(slots: Sequence[Slot]) -> frozenset[int]:
    """Return the slots, by number, that may be part of an arena.

    They are accessed by kernels alone and have constant sizes, and an arena of all of them stays within
    ``_ARENA_LIMIT``. A slot that the host accesses is left out, since a tensor over part of an arena costs the host
    more than an allocation.
    """
    found: set[int] = set()
    candidates: dict[Device, list[int]] = {}
    for number, slot in enumerate(slots):
        if not (slot.escapes or slot.alone or slot.host_visible) and isinstance(slot.nbytes, int):
            candidates.setdefault(slot.device, []).append(number)
    for numbers in candidates.values():
        arena = assign_offsets([_span(slots[number]) for number in numbers], _ARENA_LIMIT)
        found.update(n for n, offset in zip(numbers, arena.offsets, strict=True) if offset is not None)
    return frozenset(found)


def lay_out_slots(
    slots: Sequence[Slot],
    members: frozenset[int],
    runs: LaunchRuns,
    scope: ArenaScope,
    across_runs: bool,
    in_results: bool = False,
) -> StorageLayout:
    """Return an offset for every slot.

    ``scope`` says which of the ``members`` share an arena. Memory freed in an earlier run is reused for a slot of its
    size only with ``across_runs``. With ``in_results`` members are first placed in the memory of results that are
    written later.
    """
    layout = StorageLayout()
    in_arenas = _offsets_in_results(slots, members, layout) if in_results else {}
    in_arenas |= _arena_offsets(slots, members - in_arenas.keys(), runs, scope, layout)
    pool: dict[tuple[Size, Device], list[StorageArea]] = {}
    for number, slot in enumerate(slots):
        offset = in_arenas.get(number)
        if offset is None:
            offset = _own_storage(
                slot, runs, across_runs, layout, pool.setdefault((slot.nbytes, slot.device), [])
            )
        layout.offsets.append(offset)
    return layout


def _offsets_in_results(
    slots: Sequence[Slot], members: frozenset[int], layout: StorageLayout
) -> dict[int, SlotOffset]:
    """Return the offsets, by number, of results that the caller receives and of members in the same memory, which are
    last accessed before the result is written."""
    offsets: dict[int, SlotOffset] = {}
    results = [
        number
        for number, slot in enumerate(slots)
        if slot.escapes and not slot.alone and isinstance(slot.nbytes, int)
    ]
    for result in sorted(results, key=lambda number: (-_span(slots[number]).nbytes, number)):
        owner = slots[result]
        earlier = [
            number
            for number in sorted(members - offsets.keys())
            if slots[number].device == owner.device and slots[number].last < owner.first
        ]
        # The size of a slot is rounded up, while the tensor that the caller receives has its elements alone.
        limit = _span(owner).nbytes - STORAGE_ALIGNMENT
        arena = assign_offsets([_span(slots[number]) for number in earlier], limit)
        placed = [(n, offset) for n, offset in zip(earlier, arena.offsets, strict=True) if offset is not None]
        if placed:
            first = min(slots[number].first for number, _ in placed)
            area = layout.add(owner.nbytes, owner.device, first, owner.last, escapes=True)
            offsets[result] = SlotOffset(area, 0, reasons.MEMORY_FRESH)
            offsets |= {number: SlotOffset(area, offset, reasons.MEMORY_ARENA) for number, offset in placed}
    return offsets


def _arena_offsets(
    slots: Sequence[Slot], members: frozenset[int], runs: LaunchRuns, scope: ArenaScope, layout: StorageLayout
) -> dict[int, SlotOffset]:
    """Return the offsets of the slots that are in arenas, by number."""
    groups: dict[tuple[int, Device], list[int]] = {}
    for number in sorted(members) if scope != "none" else ():
        slot = slots[number]
        run = runs.of[slot.first] if scope == "run" else 0
        if scope == "graph" or run == runs.of[slot.last]:
            groups.setdefault((run, slot.device), []).append(number)
    offsets: dict[int, SlotOffset] = {}
    for (_, device), numbers in groups.items():
        if len(numbers) == 1:
            continue
        arena = assign_offsets([_span(slots[number]) for number in numbers])
        first = min(slots[number].first for number in numbers)
        last = max(slots[number].last for number in numbers)
        area = layout.add(arena.nbytes, device, first, last)
        for number, offset in zip(numbers, arena.offsets, strict=True):
            assert offset is not None
            offsets[number] = SlotOffset(area, offset, reasons.MEMORY_ARENA)
    return offsets


def _span(slot: Slot) -> ArenaSpan:
    """Return the arena span of a slot of constant size."""
    assert isinstance(slot.nbytes, int)
    return ArenaSpan(slot.first, slot.last, slot.nbytes)


def _own_storage(
    slot: Slot, runs: LaunchRuns, across_runs: bool, layout: StorageLayout, pool: list[StorageArea]
) -> SlotOffset:
    """Return a freed storage of ``pool``, which holds those of the slot's size, else a new one."""
    for area in () if slot.escapes or slot.alone else reversed(pool[-REUSE_DISTANCE:]):
        recent = across_runs and slot.first - area.last <= REUSE_DISTANCE
        if area.last < slot.first and (recent or runs.of[area.last] == runs.of[slot.first]):
            area.last = slot.last
            return SlotOffset(area, 0, reasons.MEMORY_REUSE)
    area = layout.add(slot.nbytes, slot.device, slot.first, slot.last, slot.escapes)
    if not (slot.escapes or slot.alone):
        pool.append(area)
    return SlotOffset(area, 0, reasons.MEMORY_FRESH)
