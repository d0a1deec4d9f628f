"""Tables of numbers that were measured on one chip, by which schedules of kernels are chosen."""

from litz_codegen_triton.tables.chips import Chip, chip_of
from litz_codegen_triton.tables.tiles import AttentionTile, BlockLimits, TileTable

__all__ = ["AttentionTile", "BlockLimits", "Chip", "TileTable", "chip_of"]
