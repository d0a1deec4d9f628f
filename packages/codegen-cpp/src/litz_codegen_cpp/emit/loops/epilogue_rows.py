"""Rows of buffers that the epilogue of a convolution in tiles reads or writes, which are prefetched during its sums."""

from __future__ import annotations

from dataclasses import dataclass

from litz_ir.contraction import TiledSum
from litz_ir.dtypes import f32
from litz_ir.loops import Axis
from litz_ir.plan import Kernel, Store
from litz_ir.scalar import loads
from litz_ir.symbols import Size, coefficient, substitute

MOST_ROWS = 4
"""Most buffers that are prefetched: of more, the lines of a tile would not stay in the L1 cache."""


@dataclass(frozen=True, slots=True)
class EpilogueRows:
    """The row of each pixel in a buffer of floats with adjacent channels and equally distant pixels."""

    buffer: str
    """The parameter."""
    start: int
    """Element of the first channel of the first pixel."""
    step: int
    """Elements from one pixel to the next."""


def epilogue_rows(kernel: Kernel, tiled: TiledSum) -> tuple[EpilogueRows, ...]:
    """Return the rows that all phases but the first one access, at most :data:`MOST_ROWS`."""
    floats = {parameter.name for parameter in kernel.parameters if parameter.dtype == f32}
    found: dict[EpilogueRows, None] = {}
    for phase in kernel.phases[1:]:
        for statement in phase.statements:
            if not isinstance(statement, Store):
                continue
            accesses = [(statement.buffer, statement.offset)]
            accesses += [(load.buffer, load.index[0]) for load in loads(statement.value)]
            for buffer, offset in accesses:
                rows = _rows(buffer, offset, tiled)
                if rows is not None and buffer in floats:
                    found.setdefault(rows)
    return tuple(found)[:MOST_ROWS]


def _rows(buffer: str, offset: Size, tiled: TiledSum) -> EpilogueRows | None:
    """Return the rows of an access at the points of the kernel's outer axes; ``None`` for others."""
    axes = [axis for axis in (*tiled.pixels, tiled.channel) if axis is not None]
    steps = [coefficient(offset, axis.name) for axis in axes]
    start = substitute(offset, {axis.name: 0 for axis in axes})
    *pixels, channel = steps
    if channel != 1 or not isinstance(start, int) or not pixels:
        return None
    last = pixels[-1]
    if not isinstance(last, int) or last <= 0:
        return None
    expected = last
    for axis, step in zip(reversed(axes[:-1]), reversed(pixels), strict=True):
        if step != expected:
            return None
        expected *= _size(axis)
    return EpilogueRows(buffer, start, last)


def _size(axis: Axis) -> int:
    assert isinstance(axis.size, int)
    return axis.size
