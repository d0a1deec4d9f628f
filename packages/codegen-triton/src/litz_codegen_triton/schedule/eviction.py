"""The choice of eviction hints for the rows that loops over tiles load."""

from __future__ import annotations

from dataclasses import replace

from litz_codegen_triton.emit.indexing.statements import expressions
from litz_ir.plan import InnerTile, Kernel, Phase, TileLoops
from litz_ir.scalar import loads


def with_eviction(kernel: Kernel, loops: TileLoops) -> TileLoops:
    """Give hints to each loop over tiles: last for rows that a later phase loads again, first for rows that an earlier
    phase loaded and no later one does. A phase without axes of its own loads single elements."""
    read = [_reads(phase) if phase.axes else frozenset[str]() for phase in kernel.phases]
    inner = tuple(
        None if tile is None else _hinted(tile, number, read) for number, tile in enumerate(loops.inner)
    )
    return replace(loops, inner=inner)


def _hinted(tile: InnerTile, number: int, read: list[frozenset[str]]) -> InnerTile:
    """Return the cover of phase ``number`` with hints, of which a persistent tile has none."""
    if tile.persistent:
        return tile
    earlier = frozenset().union(*read[:number])
    later = frozenset().union(*read[number + 1 :])
    return replace(
        tile,
        evict_first=tuple(sorted((read[number] & earlier) - later)),
        evict_last=tuple(sorted(read[number] & later)),
    )


def _reads(phase: Phase) -> frozenset[str]:
    """Return the names of the buffers that a phase loads from."""
    return frozenset(load.buffer for each in phase.statements for load in loads(*expressions(each)))
