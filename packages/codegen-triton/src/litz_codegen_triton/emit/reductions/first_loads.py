"""Loads of phases after a reduction that are issued before it.

A short row is reduced in the time of one access to memory. Two that follow it, such as those of a class and of its
score, would take twice as long again.
"""

from __future__ import annotations

from math import prod

from litz_codegen_triton.emit.bodies.body import TileEmitter
from litz_codegen_triton.emit.indexing.coordinates import TileIndices
from litz_codegen_triton.emit.indexing.prefetch import early_loads, independent_loads
from litz_codegen_triton.emit.indexing.statements import values_of
from litz_ir.scalar import Expr, loads

_FEW_ROWS = 32
"""Most rows of a thread block whose loads after a reduction come before it: one for each thread of a warp."""


class FirstLoads:
    """Writer of the loads that precede the first reduction of a kernel."""

    def __init__(self, body: TileEmitter, coordinates: TileIndices) -> None:
        self._body = body
        self._coordinates = coordinates
        tiles = coordinates.tiles
        self._done = tiles.uses_dot or prod(dim.block for dim in tiles.outer) > _FEW_ROWS

    def write(self, row: int | None = None) -> None:
        """Write the loads of prefetching pointwise phases that depend on no other phase, the first time it is called.

        The loads of ``row``, the number of a phase in registers, come first. Before a loop, whose loads come later, no
        index is waited for: loads whose index is loaded stay in their phase.
        """
        if self._done:
            return
        self._done = True
        tiles = self._coordinates.tiles
        later = [
            value
            for number in tiles.prefetch
            if tiles.inner[number] is None
            for value in self._values(number)
        ]
        if not later:
            return
        own = [] if row is None else early_loads(self._values(row))
        for load in (*own, *(early_loads(later) if row is None else independent_loads(later))):
            if all(self._body.setting.parameters[each.buffer].access == "in" for each in loads(load)):
                self._body.value(load)

    def _values(self, number: int) -> list[Expr]:
        return [value for each in self._coordinates.phases[number] for value in values_of(each)]
