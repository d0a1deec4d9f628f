"""Offsets in one allocation for blocks of different live intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ArenaSpan:
    """A block of memory and the steps at which it is live."""

    first: int
    """The first step at which it is live."""
    last: int
    """The last step at which it is live."""
    nbytes: int
    """Its size in bytes."""


@dataclass(frozen=True, slots=True)
class ArenaLayout:
    """The offsets of spans in an arena."""

    offsets: tuple[int | None, ...]
    """The offset of each span in bytes; ``None`` for a span left out."""
    nbytes: int
    """The size of the arena in bytes."""


def assign_offsets(spans: Sequence[ArenaSpan], limit: int | None = None) -> ArenaLayout:
    """Assign offsets so that no two spans that are live at the same step overlap (best fit).

    Spans are taken in the order of their first steps, the largest first among equal ones, and each is assigned the
    smallest free gap that is large enough. A span that would end beyond ``limit`` bytes is left out. A common divisor
    of all sizes divides all offsets.
    """
    gaps = _Gaps()
    offsets: list[int | None] = [None] * len(spans)
    ending = sorted(range(len(spans)), key=lambda k: spans[k].last)
    done = 0
    for number in sorted(range(len(spans)), key=lambda k: (spans[k].first, -spans[k].nbytes, k)):
        span = spans[number]
        while done < len(ending) and spans[ending[done]].last < span.first:
            old = ending[done]
            offset = offsets[old]
            if offset is not None:
                gaps.give(offset, spans[old].nbytes)
            done += 1
        offsets[number] = gaps.take(span.nbytes, limit)
    return ArenaLayout(tuple(offsets), gaps.end)


class _Gaps:
    """The free blocks of an arena by offset; no two of them are adjacent."""

    def __init__(self) -> None:
        self.end = 0
        self._free: dict[int, int] = {}
        self._starts: dict[int, int] = {}

    def take(self, nbytes: int, limit: int | None) -> int | None:
        """Return the offset of the smallest gap that is large enough, else extend the arena within ``limit``."""
        fitting = [(size, offset) for offset, size in self._free.items() if size >= nbytes]
        if fitting:
            size, offset = min(fitting)
            self._remove(offset)
            if size > nbytes:
                self._add(offset + nbytes, size - nbytes)
            return offset
        start = self._starts.get(self.end, self.end)
        if limit is not None and start + nbytes > limit:
            return None
        if start != self.end:
            self._remove(start)
        self.end = start + nbytes
        return start

    def give(self, offset: int, nbytes: int) -> None:
        """Free a block, merged with the gaps adjacent to it."""
        if nbytes == 0:
            return
        before = self._starts.get(offset)
        if before is not None:
            nbytes += self._remove(before)
            offset = before
        if offset + nbytes in self._free:
            nbytes += self._remove(offset + nbytes)
        self._add(offset, nbytes)

    def _add(self, offset: int, nbytes: int) -> None:
        self._free[offset] = nbytes
        self._starts[offset + nbytes] = offset

    def _remove(self, offset: int) -> int:
        nbytes = self._free.pop(offset)
        del self._starts[offset + nbytes]
        return nbytes
