"""Orders of blocks of work: by what each frees, or each as late as its first reader lets it."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkBlock:
    """Work that runs as one. ``needs`` are the blocks, by position, that run before; ``touches`` names the memory that
    it reads or writes."""

    needs: frozenset[int]
    touches: frozenset[str]


def freeing_first(
    blocks: Sequence[WorkBlock], sizes: Mapping[str, int], kept: frozenset[str]
) -> tuple[int, ...]:
    """Of the blocks that can run, always the one that takes the least memory beyond what it frees; of equal ones the
    first.

    ``sizes`` gives the bytes of memory that the first block to touch it takes; after the last block to do so it is
    free, unless it is ``kept``.
    """
    return _Freeing(blocks, sizes, kept).run()


class _Freeing:
    def __init__(self, blocks: Sequence[WorkBlock], sizes: Mapping[str, int], kept: frozenset[str]) -> None:
        self.blocks = blocks
        self.sizes = sizes
        self.kept = kept
        self.left: dict[str, set[int]] = {}
        self.taken: set[str] = set()
        for number, block in enumerate(blocks):
            for name in block.touches & sizes.keys():
                self.left.setdefault(name, set()).add(number)
        self.readers = _readers(blocks)
        self.waiting = [len(block.needs) for block in blocks]
        self.done: list[int] = []
        self.started = [False] * len(blocks)
        self.heap: list[tuple[int, int]] = []

    def run(self) -> tuple[int, ...]:
        for number, count in enumerate(self.waiting):
            if count == 0:
                self._offer(number)
        while self.heap:
            _, number = heapq.heappop(self.heap)
            if not self.started[number]:
                self._start(number)
        return tuple(self.done)

    def _offer(self, number: int) -> None:
        heapq.heappush(self.heap, (self._growth(number), number))

    def _growth(self, number: int) -> int:
        """The bytes that a block takes, less those that it frees."""
        names = self.blocks[number].touches & self.sizes.keys()
        taken = sum(self.sizes[name] for name in names if name not in self.taken)
        return taken - sum(self.sizes[n] for n in names if n not in self.kept and len(self.left[n]) == 1)

    def _start(self, number: int) -> None:
        self.started[number] = True
        self.done.append(number)
        for name in self.blocks[number].touches & self.sizes.keys():
            self.left[name].discard(number)
            first = name not in self.taken
            self.taken.add(name)
            # Whoever touches it last frees it; whoever touches it next takes nothing any more.
            for other in self.left[name] if first or len(self.left[name]) == 1 else ():
                if self.waiting[other] == 0:
                    self._offer(other)
        for reader in self.readers[number]:
            self.waiting[reader] -= 1
            if self.waiting[reader] == 0:
                self._offer(reader)


def depth_first(blocks: Sequence[WorkBlock]) -> tuple[int, ...]:
    """Every block as late as the first block that needs it lets it; blocks that none needs in their order."""
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
    found: list[list[int]] = [[] for _ in blocks]
    for number, block in enumerate(blocks):
        for needed in block.needs:
            found[needed].append(number)
    return found
