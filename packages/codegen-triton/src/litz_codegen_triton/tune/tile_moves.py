"""Moves from a kernel's chosen tiles to those of its candidate configs, by form of kernel.

The moves that gained most often come first.
"""

from __future__ import annotations

from dataclasses import dataclass

_WHOLE_ROW = 20
"""More steps than any row has: a tile that holds the whole row."""


@dataclass(frozen=True, slots=True)
class TileMove:
    """A change of a schedule; a step of a tile size or of warps doubles it, a negative one halves it."""

    y: int = 0
    """Steps of the tile along ``y``."""

    x: int = 0
    """Steps of the tile along ``x``."""

    r: int = 0
    """Steps of the tile along the reduction axes."""

    warps: int = 0
    """Steps of the number of warps."""

    stages: int = 0
    """Software pipelining stages to add."""

    persistent: bool = False
    """True for a persistent matmul with one thread block an SM, which reads its operands through tensor descriptors."""


MAP = (
    TileMove(x=-1),
    TileMove(x=1),
    TileMove(x=1, warps=1),
    TileMove(x=-1, warps=-1),
    TileMove(x=2),
    TileMove(x=-2),
)
SQUARE = (
    TileMove(warps=1),
    TileMove(y=-1),
    TileMove(x=-1),
    TileMove(-1, -1, warps=-2),
    TileMove(-1, -1, warps=-1),
    TileMove(1, 1, warps=2),
)
ROWS = (
    TileMove(warps=1),
    TileMove(warps=-1),
    TileMove(x=1),
    TileMove(r=-2),
    TileMove(x=1, warps=1),
    TileMove(r=-2, warps=-1),
)
SHORT_ROWS = (
    TileMove(warps=1),
    TileMove(warps=-1),
    TileMove(x=1),
    TileMove(x=-1),
    TileMove(x=1, warps=1),
    TileMove(x=-1, warps=-1),
)
CHUNKED_ROWS = (
    TileMove(r=_WHOLE_ROW),
    TileMove(r=_WHOLE_ROW, warps=1),
    TileMove(r=-1),
    TileMove(r=1),
    TileMove(warps=-1),
    TileMove(r=-1, warps=-1),
    TileMove(r=2),
    TileMove(warps=1),
)
COLUMNS = (
    TileMove(x=1, r=-1),
    TileMove(x=-1, r=1),
    TileMove(r=1),
    TileMove(warps=1),
    TileMove(warps=-1),
    TileMove(r=-1),
    TileMove(x=1),
)
MATMUL = (
    TileMove(stages=1),
    TileMove(x=1, persistent=True),
    TileMove(x=1),
    TileMove(r=-1, stages=1),
    TileMove(stages=1, persistent=True),
    TileMove(x=-1),
    TileMove(y=-1),
    TileMove(r=1),
    TileMove(warps=-1),
    TileMove(warps=1),
)
ROUNDED_MATMUL = (
    TileMove(1, 1, r=-1, warps=1),
    TileMove(1, 1, r=-1, warps=1, persistent=True),
    TileMove(x=1, warps=1),
    TileMove(stages=1),
    TileMove(1, 1, r=-1, warps=1, stages=1),
    TileMove(y=1, warps=1),
    *MATMUL,
)
FUSED_ATTENTION = (
    TileMove(r=1),
    TileMove(y=-1, warps=-1),
    TileMove(y=1, warps=1),
    TileMove(r=-1),
    TileMove(warps=1),
    TileMove(stages=-1),
    TileMove(stages=1),
    TileMove(y=-1),
    TileMove(r=1, stages=-1),
    TileMove(warps=-1),
)
HORIZONTAL_FUSION = (
    TileMove(x=-1),
    TileMove(x=1),
    TileMove(x=1, warps=1),
    TileMove(x=-1, warps=-1),
    TileMove(r=1),
    TileMove(r=-1),
    TileMove(warps=-1),
    TileMove(warps=1),
)
"""Moves for each form of kernel, in the order in which they are tried. ``MAP`` and ``SQUARE``: pointwise kernels of one
and of two tile dimensions. ``ROWS`` and ``SHORT_ROWS``: persistent reductions with one row and with several rows a
thread block. ``CHUNKED_ROWS`` and ``COLUMNS``: looped reductions of rows and of columns. ``MATMUL`` and
``ROUNDED_MATMUL``: matmuls, the latter of ``f32`` operands rounded to TF32. ``FUSED_ATTENTION``: fused attention.
``HORIZONTAL_FUSION``: foreach kernels."""
