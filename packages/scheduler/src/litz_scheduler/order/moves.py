"""Moves of a work block across the peak of an order: one that frees memory to before it, one that can wait after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from litz_scheduler.order.candidates import WorkBlock

_NEAR = 32
"""Blocks after the peak, or before it, of which one is moved."""

_MOST_VIEWS = 4
"""Most blocks without memory of their own, as views are, that move with it."""

Order = tuple[int, ...]
"""Numbers of blocks in the order in which they run."""


@dataclass(frozen=True, slots=True)
class Peak:
    """The blocks during which most memory is allocated, by their positions in an order."""

    first: int
    """The first of them."""
    last: int
    """The last of them: memory is allocated before all and freed after all."""
    after: int
    """The first block later on before which memory is allocated again, beyond the one that follows at once."""


def relieved(
    blocks: Sequence[WorkBlock],
    order: Sequence[int],
    peak: Peak,
    sizes: Mapping[str, int],
    escapes: frozenset[str],
    donated: frozenset[str],
) -> Order | None:
    """Return an order in which a block that frees more than it allocates runs before the peak.

    It is the first such block among the next ones that needs nothing from the peak on but blocks that touch no memory,
    which move with it; ``None`` without one. ``sizes`` gives the bytes that the first block to touch a memory root
    allocates; they are free after the last block that does, unless the root ``escapes``. The memory roots ``donated``
    are allocated from the start.
    """
    at = peak.first
    done = frozenset(order[:at])
    allocated = donated.union(*(blocks[number].touches for number in done))
    remaining = Counter(name for number in order[at:] for name in blocks[number].touches)
    for position in range(at + 1, min(len(order), at + 1 + _NEAR)):
        block = blocks[order[position]]
        names = block.touches & sizes.keys()
        freed = sum(sizes[name] for name in names - escapes if remaining[name] == 1)
        if sum(sizes[name] for name in names - allocated) >= freed:
            continue
        moved = _with_pending_views(blocks, order[position], done)
        if moved is not None and order[at] not in moved:
            return _reordered(order, moved, at)
    return None


def deferred(
    blocks: Sequence[WorkBlock],
    order: Sequence[int],
    peak: Peak,
    sizes: Mapping[str, int],
    escapes: frozenset[str],
    donated: frozenset[str],
) -> Order | None:
    """Return an order in which a block that allocates more than it frees runs after the peak.

    It is the last such block up to the peak's end that no block up to there needs; ``None`` without one. Blocks that
    touch no memory and read it move with it. The other arguments are those of :func:`relieved`.
    """
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for position, number in enumerate(order):
        for name in blocks[number].touches:
            first.setdefault(name, position)
            last[name] = position
    for position in range(min(peak.last, len(order) - 1), max(-1, peak.first - 1 - _NEAR), -1):
        names = blocks[order[position]].touches & sizes.keys()
        taken = sum(sizes[name] for name in names - donated if first[name] == position)
        # What other blocks of the peak read is allocated there in any order.
        freed = sum(
            sizes[name] for name in names - escapes if last[name] < peak.first or last[name] == position
        )
        if taken <= freed:
            continue
        moved, reader = {order[position]}, peak.after
        for following in range(position + 1, peak.after):
            if blocks[order[following]].needs.isdisjoint(moved):
                continue
            if blocks[order[following]].touches or len(moved) > _MOST_VIEWS:
                reader = following
                break
            moved.add(order[following])
        later = _reordered(order, moved, reader)
        if reader > peak.last and later != tuple(order):
            return later
    return None


def _with_pending_views(blocks: Sequence[WorkBlock], number: int, done: Collection[int]) -> set[int] | None:
    """Return a block with the blocks that it needs and that are not done; ``None`` where these touch memory."""
    moved, waiting = {number}, [number]
    while waiting:
        for needed in blocks[waiting.pop()].needs.difference(done, moved):
            if blocks[needed].touches or len(moved) > _MOST_VIEWS:
                return None
            moved.add(needed)
            waiting.append(needed)
    return moved


def _reordered(order: Sequence[int], moved: Collection[int], to: int) -> Order:
    """Return an order in which the moved blocks run, in their own order, before the one at position ``to``."""
    before = (number for number in order[:to] if number not in moved)
    after = (number for number in order[to:] if number not in moved)
    return (*before, *(number for number in order if number in moved), *after)
