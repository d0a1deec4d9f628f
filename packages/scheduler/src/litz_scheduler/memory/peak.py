"""The memory model: the bytes that a plan holds at once, beyond what it is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from litz_ir.symbols import Size, SymbolTable
from litz_scheduler.cost import estimate


@dataclass(slots=True)
class LiveBlock:
    """``nbytes`` bytes that are taken before part ``first`` of a plan, and given back after part ``last``: never where
    that is ``None``."""

    nbytes: Size
    first: int
    last: int | None


def live_bytes(
    parts: int, blocks: Sequence[LiveBlock], transient: Sequence[tuple[int, int]], symbols: SymbolTable
) -> tuple[int, ...]:
    """The most bytes held in each of so many parts of a plan; symbolic sizes at their hints.

    ``transient`` gives (part, bytes) of what a part takes for itself and gives back.
    """
    taken, given, within = [0] * parts, [0] * parts, [0] * parts
    for block in blocks:
        nbytes = estimate(block.nbytes, symbols)
        taken[block.first] += nbytes
        if block.last is not None:
            given[block.last] += nbytes
    for part, nbytes in transient:
        within[part] = max(within[part], nbytes)
    live, found = 0, []
    for part in range(parts):
        live += taken[part]
        found.append(live + within[part])
        live -= given[part]
    return tuple(found)
