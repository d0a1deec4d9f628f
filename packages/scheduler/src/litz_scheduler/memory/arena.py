"""Offsets inside one allocation for memory that is wanted at different times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ArenaSpan:
    """``nbytes`` bytes that are wanted from step ``first`` to step ``last``, both included."""

    first: int
    last: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class ArenaLayout:
    """The offset of each span, ``None`` for one left out, and the bytes that all together take."""

    offsets: tuple[int | None, ...]
    nbytes: int


def assign_offsets(spans: Sequence[ArenaSpan], limit: int | None = None) -> ArenaLayout:
    """Place spans so that no two share a byte at the same step, each in the smallest gap that holds it when it begins.

    Those that begin together come largest first. One that would end beyond ``limit`` is left out. Offsets are multiples
    of what all sizes are multiples of.
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
    """The free blocks of memory that ends at ``end``, by offset; no two touch."""

    def __init__(self) -> None:
        self.end = 0
        self._free: dict[int, int] = {}
        self._starts: dict[int, int] = {}

    def take(self, nbytes: int, limit: int | None) -> int | None:
        """The offset of the smallest gap that is large enough; else the memory grows, within ``limit``."""
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
        """Free a block, as one with the gaps that touch it."""
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
