"""The threads of a thread block whose rows stay in registers."""

from __future__ import annotations

from litz_codegen_triton.schedule.kernel_traits import KernelTraits
from litz_ir.plan import ScanStore

_ROW_BYTES, _LARGE_ROW_BYTES = 64, 128
"""Bytes that a thread loads of rows, and of rows of ``_LARGE_ROW`` bytes and more; half of it where it scans them. With
fewer, threads wait for one another at barriers more often than for memory; an SM has registers for one thread
block of large rows with more threads, which loads nothing while it reduces."""

_LARGE_ROW = 32 << 10
"""Bytes of a tile from which on a thread loads ``_LARGE_ROW_BYTES``."""


def row_threads(traits: KernelTraits, elements: int) -> int:
    """Return the threads for a tile of ``elements`` of whole rows, a power of two as Triton's warps are."""
    nbytes = elements * traits.row_bytes()
    each = _LARGE_ROW_BYTES if nbytes >= _LARGE_ROW else _ROW_BYTES
    scans = any(isinstance(statement, ScanStore) for statement in traits.statements)
    threads = nbytes // (each // 2 if scans else each)
    return 1 << max(threads.bit_length() - 1, 0)
