"""Distances and order of prefetches in register tiles, which read a few rows of a matrix at each point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from litz_ir.loops import Axis
from litz_ir.plan import Accumulate, Phase
from litz_ir.scalar import loads
from litz_ir.symbols import Size, add, coefficient, free_symbols, mul, substitute

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
    """A buffer of which a loop of a register tile reads adjacent rows, which are contiguous in memory."""

    rows: Mapping[Size, int]
    """The number of its row, by the offset of each load."""
    start: Size
    """The offset of the first element of the first row."""
    pitch: int
    """Elements from one row to the next, all of which the loop reads."""
    ahead: int
    """Elements from a load to what it prefetches: the rows of the longest loop of the tile, so that loops of unequal
    numbers of rows leave none out."""
    is_ordered: bool
    """True where the order of memory pays."""

    def in_order(self, offset: Size, step: int) -> tuple[Size, int] | None:
        """Return the offset, less the distance, that a load prefetches so that the loads of all steps of ``step``
        elements go through the rows in the order of memory, and the elements of a step before it; ``None`` for other
        loads."""
        row = self.rows.get(offset)
        if row is None or not self.is_ordered:
            return None
        within = add(offset, mul(self.start, -1), -row * self.pitch)
        return add(self.start, mul(within, len(self.rows)), row * step), row * step


def streams(phase: Phase, phases: Sequence[Phase], axis: str) -> dict[str, Stream]:
    """Return the buffers whose rows a phase of sums reads at once, the outer axis ``axis`` counting tiles of them;
    ``phases`` are all that sum."""
    sums = sum(isinstance(each, Accumulate) for each in phase.statements)
    reads = matrices(phase, axis)
    found, read = {}, sum(map(len, reads.values()))
    for buffer, offsets in reads.items():
        most = max(len(matrices(each, axis).get(buffer, ())) for each in phases)
        rows = _rows(offsets, phase.axes, axis, most, is_ordered=sums // read in _SUMS)
        if rows is not None:
            found[buffer] = rows
    return found


def matrices(phase: Phase, axis: str) -> dict[str, set[Size]]:
    """Return the offsets of the loads of a phase of sums that depend on the outer axis ``axis``, by their buffer."""
    sums = [each for each in phase.statements if isinstance(each, Accumulate)]
    found: dict[str, set[Size]] = {}
    for load in loads(*(value for each in sums for value in each.values)):
        if {axis, phase.axes[-1].name} <= free_symbols(load.index[0]):
            found.setdefault(load.buffer, set()).add(load.index[0])
    return found


def _rows(
    offsets: set[Size], axes: Sequence[Axis], axis: str, most: int, *, is_ordered: bool
) -> Stream | None:
    """Return the rows at these offsets; ``None`` where they are not adjacent, or have elements that are not read."""
    first = next(iter(offsets))
    distances = {each: add(each, mul(first, -1)) for each in offsets}
    numbers = {each: value for each, value in distances.items() if isinstance(value, int)}
    low = min(numbers.values())
    tile = coefficient(first, axis)
    pitch = gcd(*(value - low for value in numbers.values())) or tile
    if not isinstance(tile, int) or not isinstance(pitch, int) or pitch <= 0 or tile % pitch:
        return None
    rows = {each: (value - low) // pitch for each, value in numbers.items()}
    if sorted(rows.values()) != list(range(len(offsets))) or not _fills(first, axes, pitch):
        return None
    start = substitute(add(first, low), {each.name: 0 for each in axes})
    return Stream(rows, start, pitch, most * pitch, is_ordered)


def _fills(offset: Size, axes: Sequence[Axis], pitch: int) -> bool:
    """Return whether loads along these axes read all lines of a row of ``pitch`` elements."""
    last = stride = 0
    for each in axes:
        factor = coefficient(offset, each.name)
        if not isinstance(factor, int) or not isinstance(each.size, int) or factor < 0:
            return False
        stride = factor
        last += stride * (each.size - 1)
    return last < pitch <= last + stride


def distance(size: Size | None, itemsize: int, *, whole: bool) -> int | None:
    """Return the bytes between a load and its prefetch where points or, in the order of memory, loops are ``size``
    elements apart: one of them or, of small ones, several, so that each line is prefetched once.

    ``whole`` rows are prefetched in the order of memory, if they are short enough; else ``None``.
    """
    length = size * itemsize if isinstance(size, int) else 0
    if 0 < length <= (_LONGEST if whole else _FARTHEST):
        return -(-_AHEAD // length) * length
    return None if whole else _AHEAD
