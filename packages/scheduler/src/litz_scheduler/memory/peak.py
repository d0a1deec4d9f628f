"""The memory model: the bytes that a plan has allocated at each point, beyond its inputs and constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from litz_ir.symbols import Size, SymbolTable
from litz_scheduler.analysis.cost import estimate


@dataclass(slots=True)
class LiveBlock:
    """An allocation over a range of the runs of a plan."""

    nbytes: Size
    """Its size in bytes."""
    first: int
    """The run before which it is allocated."""
    last: int | None
    """The run after which it is freed; ``None`` for never."""


def live_bytes(
    runs: int, blocks: Sequence[LiveBlock], transient: Sequence[tuple[int, int]], symbols: SymbolTable
) -> tuple[int, ...]:
    """Return the most bytes allocated in each of ``runs`` runs of a plan, symbolic sizes at their hints.

    ``transient`` gives (run, bytes) of allocations that a step makes and frees itself.
    """
    taken, freed, within = [0] * runs, [0] * runs, [0] * runs
    for block in blocks:
        nbytes = estimate(block.nbytes, symbols)
        taken[block.first] += nbytes
        if block.last is not None:
            freed[block.last] += nbytes
    for run, nbytes in transient:
        within[run] = max(within[run], nbytes)
    live, found = 0, []
    for run in range(runs):
        live += taken[run]
        found.append(live + within[run])
        live -= freed[run]
    return tuple(found)
