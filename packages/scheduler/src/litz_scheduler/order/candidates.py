"""Candidate orders of work blocks: by the memory that each frees, and depth first."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkBlock:
    """Steps that run as one unit."""

    needs: frozenset[int]
    """The positions of the blocks that run before."""
    touches: frozenset[str]
    """The memory roots that it reads or writes."""


def freeing_first(
    blocks: Sequence[WorkBlock], sizes: Mapping[str, int], escapes: frozenset[str]
) -> tuple[int, ...]:
    """Return an order that always continues with the block that allocates least beyond what it frees.

    Of equal blocks the first runs first. ``sizes`` gives the bytes that the first block to touch a memory root
    allocates; they are free after the last block that does, unless the root ``escapes``.
    """
    return _FreeingOrder(blocks, sizes, escapes).run()


class _FreeingOrder:
    """A greedy list scheduler, with a heap of the blocks that are ready."""

    def __init__(
        self, blocks: Sequence[WorkBlock], sizes: Mapping[str, int], escapes: frozenset[str]
    ) -> None:
        self.blocks = blocks
        self.sizes = sizes
        self.escapes = escapes
        self.remaining: dict[str, set[int]] = {}
        self.allocated: set[str] = set()
        for number, block in enumerate(blocks):
            for name in block.touches & sizes.keys():
                self.remaining.setdefault(name, set()).add(number)
        self.readers = _readers(blocks)
        self.waiting = [len(block.needs) for block in blocks]
        self.done: list[int] = []
        self.started = [False] * len(blocks)
        self.heap: list[tuple[int, int]] = []

    def run(self) -> tuple[int, ...]:
        """Return the order of the blocks."""
        for number, count in enumerate(self.waiting):
            if count == 0:
                self._offer(number)
        while self.heap:
            _, number = heapq.heappop(self.heap)
            if not self.started[number]:
                self._start(number)
        return tuple(self.done)

    def _offer(self, number: int) -> None:
        """Push a ready block, by the memory that it would add now."""
        heapq.heappush(self.heap, (self._growth(number), number))

    def _growth(self, number: int) -> int:
        """Return the bytes that a block allocates, less those that it frees."""
        names = self.blocks[number].touches & self.sizes.keys()
        allocated = sum(self.sizes[name] for name in names if name not in self.allocated)
        return allocated - sum(
            self.sizes[n] for n in names if n not in self.escapes and len(self.remaining[n]) == 1
        )

    def _start(self, number: int) -> None:
        """Append a block to the order, and push the blocks that are ready or cheaper because of it."""
        self.started[number] = True
        self.done.append(number)
        for name in self.blocks[number].touches & self.sizes.keys():
            self.remaining[name].discard(number)
            first = name not in self.allocated
            self.allocated.add(name)
            # The last block to touch it will free it, and the next one no longer allocates it.
            for other in self.remaining[name] if first or len(self.remaining[name]) == 1 else ():
                if self.waiting[other] == 0:
                    self._offer(other)
        for reader in self.readers[number]:
            self.waiting[reader] -= 1
            if self.waiting[reader] == 0:
                self._offer(reader)


def depth_first(blocks: Sequence[WorkBlock]) -> tuple[int, ...]:
    """Return an order in which every block runs just before the first block that needs it.

    Blocks that none needs keep their order.
    """
    readers = _readers(blocks)
    done: list[int] = []
    seen = [False] * len(blocks)
    for last in (number for number, found in enumerate(readers) if not found):
        stack = [(last, iter(sorted(blocks[last].needs)))]
        seen[last] = True
        while stack:
            number, rest = stack[-1]
            below = next((each for each in rest if not seen[each]), None)
            if below is None:
                done.append(number)
                stack.pop()
            else:
                seen[below] = True
                stack.append((below, iter(sorted(blocks[below].needs))))
    return tuple(done)


def _readers(blocks: Sequence[WorkBlock]) -> list[list[int]]:
    """Return the blocks that need each block."""
    found: list[list[int]] = [[] for _ in blocks]
    for number, block in enumerate(blocks):
        for needed in block.needs:
            found[needed].append(number)
    return found
