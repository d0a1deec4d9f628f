"""The phases whose loads are issued before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import TypeVar

from litz_codegen_triton.emit.prefetch import early_loads
from litz_codegen_triton.emit.statements import independent_runs, values_of
from litz_codegen_triton.emit.tiles import WARP
from litz_ir.plan import Attention, Kernel, Matmul, Statement, Tile, TileLoops

REGISTERS = 64
"""Registers of a thread that prefetched elements may take, a quarter of what there are."""

Tiled = TypeVar("Tiled", TileLoops, Matmul, Attention)


def with_prefetch(kernel: Kernel, schedule: Tiled, summing: Iterable[int]) -> Tiled:
    """A kernel's schedule with the pointwise phases, those but the ``summing`` ones, whose loads are prefetched: those
    that have such loads, if a thread has registers for all of them at all of its points."""
    points = -(-prod(tile.block for tile in _outer(schedule)) // (WARP * schedule.warps))
    others = frozenset(summing)
    found = tuple(
        number
        for number, phase in enumerate(kernel.phases)
        if number not in others and _fits(phase.statements, points)
    )
    return replace(schedule, prefetch=found)


def covered(loops: TileLoops) -> tuple[int, ...]:
    """The numbers of the phases that have axes of their own."""
    return tuple(number for number, inner in enumerate(loops.inner) if inner is not None)


def _outer(schedule: TileLoops | Matmul | Attention) -> tuple[Tile, ...]:
    return schedule.outer if isinstance(schedule, TileLoops) else (schedule.rows, schedule.columns)


def _fits(statements: Sequence[Statement], points: int) -> bool:
    """True where there is something to prefetch, and a thread has registers for it at so many points. Statements with
    nothing in common are left as they are: the registers of one are free before the next begins, and to prefetch for
    each costs more than it gains (Adam over lists of tensors takes 6% longer)."""
    if len(list(independent_runs(statements))) != 1:
        return False
    loads = early_loads(value for each in statements for value in values_of(each))
    words = sum(max(1, points * load.dtype.itemsize // 4) for load in loads)
    return 0 < words <= REGISTERS
