"""The schedule of a matmul: tile sizes, warps and stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from litz_codegen_triton.emit.indexing.coordinates import TileIndices
from litz_codegen_triton.emit.loops.contraction import Contraction
from litz_codegen_triton.emit.loops.tiles import next_power_of_two, tiling
from litz_codegen_triton.emit.matmul.descriptor import descriptors
from litz_codegen_triton.schedule.index_width import with_index_width
from litz_codegen_triton.schedule.request import named_block, names
from litz_codegen_triton.tables import Chip
from litz_codegen_triton.tables.tiles import MatmulTiles
from litz_ir.dtypes import DType
from litz_ir.loops import Axis
from litz_ir.plan import Accumulate, Kernel, Matmul, Operand, Tile, TileRequest
from litz_ir.scalar import Masked, loads, walk
from litz_ir.symbols import SymbolTable, product

MIN_BLOCK = 16
"""Smallest tile size along M, N and K that ``tl.dot`` takes."""

_MIN_K_BYTES = 32
"""Smallest tile size along K of 8-bit operands, which have one byte an element."""


def schedule_matmul(
    kernel: Kernel, request: TileRequest, found: Contraction, known: SymbolTable, chip: Chip
) -> Matmul:
    """Schedule a kernel that computes the contraction ``found``.

    Tiles are those of the request if it names blocks; otherwise they are as large as leaves no SM idle.
    """

    def extent(axes: Sequence[Axis]) -> int:
        return known.hint(product(axis.size for axis in axes))

    summed, model, tiles = kernel.phases[found.phase].axes, chip.model, chip.tiles.matmuls
    if request.blocks:
        named = dict(request.blocks)
        y, x, r = (named_block(axes, named, MIN_BLOCK) for axes in (found.rows, found.columns, summed))
        r = max(r, _min_block_k(found.dtype))
        warps, stages = request.warps, request.stages or tiles.stages
    else:
        extents = extent(found.rows), extent(found.columns), extent(found.batch)
        y, x = _blocks(found.dtype, *extents, chip)
        warps, stages = (8 if y * x >= tiles.eight_warp_results else 4), tiles.stages
        r = _block_k(found.dtype, y + x, extent(summed), tiles)
        if _is_gathered(kernel, found):
            fits = tiles.gathered_bytes * model.warp_size * warps // (max(y, x) * found.dtype.itemsize)
            r = max(_min_block_k(found.dtype), min(r, fits, tiles.gathered_k))
    # A persistent kernel has a loop over its tiles, whose number must be static.
    sizes = (axis.size for axis in (*found.batch, *found.rows, *found.columns))
    schedule = Matmul(
        batch=names(found.batch),
        rows=Tile(names(found.rows), y),
        columns=Tile(names(found.columns), x),
        summed=Tile(names(summed), r),
        warps=warps,
        stages=stages,
        grid=request.grid if all(isinstance(size, int) for size in sizes) else 0,
        group=tiles.group,
    )
    schedule = with_index_width(kernel, schedule, found)
    return _with_descriptors(kernel, schedule, found) if request.descriptors else schedule


def _with_descriptors(kernel: Kernel, schedule: Matmul, found: Contraction) -> Matmul:
    """Read those operands of a matmul through tensor descriptors whose memory allows it."""
    scheduled = replace(kernel, schedule=schedule)
    pairs = zip(get_args(Operand), descriptors(TileIndices(scheduled, tiling(scheduled), found)), strict=True)
    chosen = tuple(operand for operand, descriptor in pairs if descriptor is not None)
    return replace(schedule, descriptors=chosen)


def _is_gathered(kernel: Kernel, found: Contraction) -> bool:
    """True where K has no constant stride in an operand: it has several axes, or masked loads have an index with
    division or remainder."""
    phase = kernel.phases[found.phase]
    values = (each for s in phase.statements if isinstance(s, Accumulate) for each in s.values)
    masked = (node for node in walk(*values) if isinstance(node, Masked))
    indices = (term for load in loads(*masked) for term in load.index)
    return len(phase.axes) > 1 or any(
        not isinstance(term, int) and not term.is_polynomial for term in indices
    )


def _blocks(dtype: DType, rows: int, columns: int, batch: int, chip: Chip) -> tuple[int, int]:
    """Return the tile sizes along M and N: the larger one is halved while there are fewer tiles than SMs."""
    limits, sm_count = chip.tiles.matmuls.blocks[dtype], chip.model.sm_count
    y, x = (min(limits.high, max(MIN_BLOCK, next_power_of_two(size))) for size in (rows, columns))

    def tile_count() -> int:
        return batch * -(-rows // y) * -(-columns // x)

    while tile_count() < sm_count and max(y, x) > limits.low:
        if x >= y:
            x //= 2
        else:
            y //= 2
    return y, x


def _block_k(dtype: DType, rows: int, length: int, tiles: MatmulTiles) -> int:
    """Return the tile size along K, of which there are ``length`` points, for ``rows`` rows of A and columns of B."""
    limit = min(tiles.block_k, tiles.stage_bytes // (rows * dtype.itemsize))
    fits = 1 << (limit.bit_length() - 1)
    return max(_min_block_k(dtype), min(fits, next_power_of_two(length)))


def _min_block_k(dtype: DType) -> int:
    """Return the smallest tile size along K for operands of a dtype."""
    return _MIN_K_BYTES if dtype.itemsize == 1 else MIN_BLOCK
