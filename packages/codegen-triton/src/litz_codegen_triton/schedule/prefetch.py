"""The choice of the phases whose loads are prefetched: issued before the phase computes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import TypeVar

from litz_codegen_triton.emit.indexing.prefetch import early_loads
from litz_codegen_triton.emit.indexing.statements import independent_runs, values_of
from litz_ir.plan import Accumulate, Attention, Kernel, Matmul, Statement, Tile, TileLoops
from litz_ir.scalar import Load, nested_reductions
from litz_ir.symbols import free_symbols, product
from litz_ir.target import DeviceModel

_REGISTERS = 64
"""Registers of a thread that prefetched elements may take: a quarter of those that a thread can have."""

_TILE_REGISTERS = 24
"""Most registers of a thread for the next tile of a loop over rows. More bytes are in flight without it: on an H200 the
gradient of an RMS norm of 4,096 elements takes 237 us without it and 205 with it in bf16, 202 and 205 in f32."""

_TILE_SHARE = 5 / 8
"""Most of the registers that a thread can have for two tiles of such a loop and its accumulators: with 7/8 of them the
gradient of an RMS norm of 16,384 elements takes 277 us instead of 229."""

Tiled = TypeVar("Tiled", TileLoops, Matmul, Attention)


def with_prefetch(kernel: Kernel, schedule: Tiled, summing: Iterable[int], warp_size: int) -> Tiled:
    """Choose the phases whose loads are prefetched and enter them into a kernel's schedule.

    They are pointwise phases, all but those that ``summing`` numbers, that have loads to prefetch, and for which a
    thread has enough registers for the loads of all of its points.
    """
    points = -(-prod(tile.block for tile in _outer(schedule)) // (warp_size * schedule.warps))
    excluded = frozenset(summing)
    found = tuple(
        number
        for number, phase in enumerate(kernel.phases)
        if number not in excluded and _fits(phase.statements, points)
    )
    return replace(schedule, prefetch=found)


def with_next_tiles(kernel: Kernel, loops: TileLoops, model: DeviceModel) -> TileLoops:
    """Add loops that sum whole rows, of which a tile has all points, to those phases: they load the next tile first.

    Threads wait for one another at each sum, and would have no load in flight.
    """
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
        if 0 < words <= _TILE_REGISTERS and 2 * words + points * sums <= _TILE_SHARE * available:
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


def _fits(statements: Sequence[Statement], points: int) -> bool:
    """True where statements have loads to prefetch and a thread has registers for them at ``points`` points.

    False for independent statements: each frees its registers before the next starts, and prefetching for all of them
    costs more than it gains (Adam over lists of tensors takes 6% longer).
    """
    if len(list(independent_runs(statements))) != 1:
        return False
    loads = early_loads(value for each in statements for value in values_of(each))
    words = sum(max(1, points * load.dtype.itemsize // 4) for load in loads)
    return 0 < words <= _REGISTERS
