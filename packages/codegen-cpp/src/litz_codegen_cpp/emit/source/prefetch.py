"""Distances and order of prefetches in register tiles, which read a few rows of a matrix at each point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from litz_ir.plan import Accumulate, Phase
from litz_ir.scalar import loads
from litz_ir.symbols import Size, add, coefficient, free_symbols, mul, symbol

LINE = 64
"""Bytes of a cache line."""

_AHEAD, _FARTHEST = 8 << 10, 32 << 10
"""Bytes between what a register tile loads and what it prefetches: at least the first, up to the second where a tile is
as long."""

_LONGEST = 256 << 10
"""The most bytes of a tile that is prefetched as a whole: a part of a second-level cache."""

_SUMS = range(2, 5)
"""The sums of one row of a matrix for which the order of memory pays: with one the CPU follows the rows by itself, with
more the loop waits for the cache more than for memory."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A buffer of which each point of a register tile reads adjacent rows, which are contiguous in memory."""

    rows: Mapping[Size, int]
    """The number of its row, by the offset of each load."""
    pitch: int
    """Elements from one row to the next."""

    def in_order(self, offset: Size, axis: str, step: int) -> tuple[Size, int] | None:
        """Return the offset that a load prefetches with a distance of whole tiles so that the loads of all steps of
        ``step`` elements go through a tile in the order of memory, and the elements of a step before it; ``None`` for
        other loads."""
        row = self.rows.get(offset)
        if row is None:
            return None
        count = len(self.rows)
        start = mul(symbol(axis), count * self.pitch)
        within = add(offset, mul(start, -1), -row * self.pitch)
        return add(start, mul(within, count), row * step), row * step


def streams(phase: Phase, axis: str) -> dict[str, Stream]:
    """Return the buffers whose rows a phase of sums reads at once, at consecutive points of the outer axis ``axis``."""
    sums = [each for each in phase.statements if isinstance(each, Accumulate)]
    offsets: dict[str, set[Size]] = {}
    for load in loads(*(value for each in sums for value in each.values)):
        if {axis, phase.axes[-1].name} <= free_symbols(load.index[0]):
            offsets.setdefault(load.buffer, set()).add(load.index[0])
    found, read = {}, sum(map(len, offsets.values()))
    for buffer, each in offsets.items():
        rows = _rows(each, axis)
        if rows is not None and len(sums) // read in _SUMS:
            found[buffer] = rows
    return found


def _rows(offsets: set[Size], axis: str) -> Stream | None:
    """Return the rows at these offsets; ``None`` where they are not all rows of a contiguous tile."""
    tile = coefficient(next(iter(offsets)), axis)
    if not isinstance(tile, int) or tile % len(offsets):
        return None
    pitch = tile // len(offsets)
    first = next(iter(offsets))
    distances = {each: add(each, mul(first, -1)) for each in offsets}
    numbers = {each: value for each, value in distances.items() if isinstance(value, int)}
    low = min(numbers.values())
    rows = {each: (value - low) // pitch for each, value in numbers.items() if (value - low) % pitch == 0}
    return Stream(rows, pitch) if sorted(rows.values()) == list(range(len(offsets))) else None


def distance(tile: Size | None, itemsize: int, *, whole: bool) -> int | None:
    """Return the bytes between a load and its prefetch where points are ``tile`` elements apart: one tile or, of small
    ones, several, so that each line is prefetched once.

    A ``whole`` tile is prefetched in the order of memory, if it is short enough; else ``None``.
    """
    size = tile * itemsize if isinstance(tile, int) else 0
    if 0 < size <= (_LONGEST if whole else _FARTHEST):
        return -(-_AHEAD // size) * size
    return None if whole else _AHEAD
