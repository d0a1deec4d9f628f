"""The threads of a thread block whose rows stay in registers."""

from __future__ import annotations

from litz_codegen_triton.schedule.kernel_traits import KernelTraits
from litz_codegen_triton.tables.tiles import LoopTiles
from litz_ir.plan import ScanStore


def row_threads(traits: KernelTraits, elements: int, tiles: LoopTiles) -> int:
    """Return the threads for a tile of ``elements`` of whole rows, a power of two as Triton's warps are."""
    nbytes = elements * traits.row_bytes()
    each = tiles.large_row_bytes if nbytes >= tiles.large_row else tiles.row_bytes
    scans = any(isinstance(statement, ScanStore) for statement in traits.statements)
    threads = nbytes // (each // 2 if scans else each)
    return 1 << max(threads.bit_length() - 1, 0)
