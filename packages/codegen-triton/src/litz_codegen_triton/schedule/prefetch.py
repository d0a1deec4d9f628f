"""The choice of the phases whose loads are prefetched: issued before the phase computes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import TypeVar

from litz_codegen_triton.emit.indexing.prefetch import early_loads
from litz_codegen_triton.emit.indexing.statements import independent_runs, values_of
from litz_ir.plan import Attention, Kernel, Matmul, Statement, Tile, TileLoops

_REGISTERS = 64
"""Registers of a thread that prefetched elements may take: a quarter of those that a thread can have."""

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
