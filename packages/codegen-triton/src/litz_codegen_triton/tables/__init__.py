"""Tables of the numbers of a chip by which schedules of kernels are chosen; most were measured."""

from litz_codegen_triton.tables.chips import Chip, chip_of
from litz_codegen_triton.tables.hopper import HOPPER
from litz_codegen_triton.tables.tiles import (
    AttentionTile,
    AttentionTiles,
    BlockLimits,
    LoopTiles,
    MapTiles,
    MatmulTiles,
    PrefetchLimits,
    TileTable,
    TuningLimits,
)

__all__ = [
    "HOPPER",
    "AttentionTile",
    "AttentionTiles",
    "BlockLimits",
    "Chip",
    "LoopTiles",
    "MapTiles",
    "MatmulTiles",
    "PrefetchLimits",
    "TileTable",
    "TuningLimits",
    "chip_of",
]
