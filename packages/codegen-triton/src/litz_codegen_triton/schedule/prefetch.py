"""The choice of the phases whose loads are prefetched: issued before the phase computes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import TypeVar

from litz_codegen_triton.emit.indexing.prefetch import early_loads
from litz_codegen_triton.emit.indexing.statements import independent_runs, values_of
from litz_codegen_triton.tables import Chip
from litz_ir.plan import Accumulate, Attention, Kernel, Matmul, Statement, Tile, TileLoops
from litz_ir.scalar import Load, nested_reductions
from litz_ir.symbols import free_symbols, product

Tiled = TypeVar("Tiled", TileLoops, Matmul, Attention)


def with_prefetch(kernel: Kernel, schedule: Tiled, summing: Iterable[int], chip: Chip) -> Tiled:
    """Choose the phases whose loads are prefetched and enter them into a kernel's schedule.

    They are pointwise phases, all but those that ``summing`` numbers, that have loads to prefetch, and for which a
    thread has enough registers for the loads of all of its points.
    """
    points = -(-prod(tile.block for tile in _outer(schedule)) // (chip.model.warp_size * schedule.warps))
    excluded = frozenset(summing)
    found = tuple(
        number
        for number, phase in enumerate(kernel.phases)
        if number not in excluded and _fits(phase.statements, points, chip.tiles.prefetch.registers)
    )
    return replace(schedule, prefetch=found)


def with_next_tiles(kernel: Kernel, loops: TileLoops, chip: Chip) -> TileLoops:
    """Add loops that sum whole rows, of which a tile has all points, to those phases: they load the next tile first.

    Threads wait for one another at each sum, and would have no load in flight.
    """
    model, limits = chip.model, chip.tiles.prefetch
    row, threads = loops.outer[-1] if loops.outer else Tile(()), model.warp_size * loops.warps
    available = min(model.thread_registers, model.registers // threads)
    found = list(loops.prefetch)
    for number, (phase, tile) in enumerate(zip(kernel.phases, loops.inner, strict=True)):
        size = product(axis.size for axis in phase.axes)
        if tile is None or tile.persistent or not isinstance(size, int) or not size > tile.block:
            continue
        values = [value for each in phase.statements for value in values_of(each)]
        if row.block == 1 or loops.cluster > 1 or size % tile.block or not list(nested_reductions(*values)):
            continue
        points = max(1, prod(dim.block for dim in loops.outer) * tile.block // threads)
        along = {axis.name for axis in phase.axes}
        words = sum(
            _words(load, row, points) for load in early_loads(values) if free_symbols(load.index[0]) & along
        )
        sums = sum(each.combiner.components for each in phase.statements if isinstance(each, Accumulate))
        if 0 < words <= limits.tile_registers and 2 * words + points * sums <= limits.tile_share * available:
            found.append(number)
    return replace(loops, prefetch=tuple(sorted(found)))


def _words(load: Load, row: Tile, points: int) -> int:
    """Return the registers for a load at ``points`` points of a thread, one where it does not vary along the row."""
    varies = free_symbols(load.index[0]) & set(row.axes)
    return max(1, points * load.dtype.itemsize // 4) if varies else 1


def covered(loops: TileLoops) -> tuple[int, ...]:
    """Return the numbers of the phases that have axes of their own."""
    return tuple(number for number, inner in enumerate(loops.inner) if inner is not None)


def _outer(schedule: TileLoops | Matmul | Attention) -> tuple[Tile, ...]:
    return schedule.outer if isinstance(schedule, TileLoops) else (schedule.rows, schedule.columns)


def _fits(statements: Sequence[Statement], points: int, registers: int) -> bool:
    """True where statements have loads to prefetch and a thread has registers for them at ``points`` points.

    False for independent statements: each frees its registers before the next starts, and prefetching for all of them
    costs more than it gains (Adam over lists of tensors takes 6% longer).
    """
    if len(list(independent_runs(statements))) != 1:
        return False
    loads = early_loads(value for each in statements for value in values_of(each))
    words = sum(max(1, points * load.dtype.itemsize // 4) for load in loads)
    return 0 < words <= registers
