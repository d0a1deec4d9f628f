"""The numbers by which tiles, warps and stages are chosen. A table has values for one chip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from litz_ir.dtypes import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopTiles:
    """Numbers of loops over tiles: reductions, scans and sorts."""

    transposed_tile: int
    """Most elements of a tile with more rows than others have, so that what is contiguous across rows is read in whole
    sectors."""
    elements: int
    """Elements of a thread in a reduction of columns, or of several short rows."""
    paired_elements: int
    """Elements of a thread where each has an index with it: such pairs are expensive to combine across threads."""
    looped_elements: int
    """Elements of a thread in a loop over tiles of one row."""
    multiword_scan_warps: int
    """Most warps of a looped scan whose values need more than one register each."""
    persistent_row: int
    """Most elements of a row that stays in registers."""
    cluster_elements: int
    """Most elements of the loaded rows that a thread block of a cluster keeps in registers."""
    looped_row: int
    """Elements of a tile in a loop over one row that is reduced or scanned, in a kernel of one such loop whose sums are
    no exponentials."""
    exponentials_bytes: int
    """The same in bytes where exponentials are summed (a softmax): a thread has two loads in flight, and rescales its
    sum once for each."""
    exponentials_warps: int
    """Warps of such a tile."""
    reread_row: int
    """Elements of a tile in a loop over one row in a kernel of several such loops, which read the row again: with
    larger tiles an SM works on fewer rows at a time, which stay in the L2 cache."""
    column_tile: int
    """Elements of a tile in a loop down several columns; a quarter of it with more than ``light_states``."""
    staged_tile_bytes: int
    """Bytes of a tile in a loop down columns that a cluster reduces, which has several tiles in flight."""
    staged_thread_bytes: int
    """Bytes of such a tile that a thread loads, of one matrix."""
    light_states: int
    """Accumulators of an element of a tile that leave registers for ``column_tile``."""
    accumulators: int
    """Most registers of a thread for the accumulators of a loop down columns."""
    stored_columns: tuple[int, ...]
    """Columns of a thread block that stores the elements of a chunk of rows and sums its columns, the best first."""
    stored_tile: int
    """Elements of the tile of such a thread block."""
    stored_stages: int
    """Software pipelining stages of such loops over narrow elements. Those over f32 have none."""
    chunked_row: int
    """Most elements of a row that is summed in one kernel with columns."""
    chunked_tile: int
    """Elements of the tile of such a row if it has fewer."""
    nested_reduction_tile: int
    """Elements of a tile with nested reductions, whose loads all stay in registers."""
    column_stages: int
    """Software pipelining stages of loops down columns that a cluster reduces. Other loops have none."""
    row_stages: int
    """The same of loops over whole rows that are summed in one kernel with columns."""
    staged_bytes: int
    """Most bytes of shared memory for the tiles of all stages."""
    sorted_tile: int
    """Keys of a thread block that sorts, unless one row has more."""
    sorted_elements: int
    """Keys of a thread that sorts."""
    short_rows_tile: int
    """Elements of the rows of a thread block that has several."""
    columns: int
    """Most columns of a thread block, unless a memory sector has more."""
    wave_sixteenths: int
    """Fewest thread blocks that reduce columns without clusters, in sixteenths of two for each SM: the columns of a
    thread block are halved until there are so many."""
    column_warps: int
    """Most warps of a loop down columns."""
    largest_tile: int
    """Most elements of a tile that autotuning, or a foreach kernel with more warps, makes larger than the default."""
    row_bytes: int
    """Bytes that a thread loads of rows that stay in registers; half of it where it scans them. With fewer, threads
    wait for one another at barriers more often than for memory."""
    large_row_bytes: int
    """The same of rows of ``large_row`` bytes and more: an SM has registers for one thread block of such rows with more
    threads, which loads nothing while it reduces."""
    large_row: int
    """Bytes of a tile from which on a thread loads ``large_row_bytes``."""
    part_warps: int
    """Fewest warps of a thread block of a cluster that divides rows. An SM has one such thread block at a time."""
    part_elements: int
    """Most elements of a row that a thread of such a cluster has; longer parts have more warps, as far as the machine
    allows."""
    foreach_warps: int
    """Most warps of a foreach kernel by default: with more, a thread has too few registers for tiles that were chosen
    for fewer warps."""
    subkernel_elements: int
    """Points of a tile that a thread of a foreach kernel may have, if the subkernel's own schedule has no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapTiles:
    """Numbers of tiles of outer points: maps, and reductions whose few points each thread visits."""

    threads: int
    """Threads of a thread block of a map."""
    least_tile: int
    """Elements down to which tiles of a map are halved so that no SM is idle."""
    window_threads: int
    """Threads of a thread block whose threads each reduce windows."""
    window_itemsize: int
    """Bytes of an element at which a thread that reduces windows loads 16 bytes at once; of larger ones it loads
    more."""
    high_cost: int
    """Cost of a point, in additions, from which on half as many threads of a map have twice as many points each, so
    that the latencies of independent points overlap."""
    costly_loads: int
    """Loads of 16 bytes by each thread of such a map."""
    gathered_loads: int
    """Loads of 16 bytes by each thread of a map with indirect indices, which loads and checks an index once for all."""
    square_tile: int
    """Size of a square tile along both dimensions, for accesses with unit stride along different axes."""
    square_elements: int
    """Elements of a thread in a square tile."""
    dominant: int
    """Ratio of bytes that are accessed with unit stride along another axis to those along the last one, above which
    lanes run along the other, whatever eager's order of axes."""
    point_registers: int
    """Registers of a thread for the values of its points. Where they need more, a thread of a map has fewer points, and
    another tile has more threads, but none that leave a thread fewer registers than it can have."""


@dataclass(frozen=True, slots=True)
class BlockLimits:
    """Bounds of the tile size of a matmul along M and N."""

    high: int
    """Size where the problem is large enough."""
    low: int
    """Size down to which tiles are halved so that no SM is idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulTiles:
    """Numbers of matmuls."""

    blocks: Mapping[DType, BlockLimits]
    """Bounds of the tile size along M and N by the operands' dtype."""
    stage_bytes: int
    """Most bytes that one tile of A and one of B have together."""
    stages: int
    """Default number of software pipelining stages."""
    group: int
    """Rows of tiles in a group of the launch order, as in Triton's tutorial."""
    block_k: int
    """Largest default tile size along K."""
    gathered_k: int
    """Largest default tile size along K of gathered operands, whose elements each have an address and a mask in
    registers, as the input of a convolution has."""
    gathered_bytes: int
    """Most bytes that a thread has of a tile of a gathered operand."""
    eight_warp_results: int
    """Results of a tile from which on a thread block has eight warps instead of four."""


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """Default tile of one kind of kernel, for problems that are large enough."""

    rows: int
    """Queries of the tile, in the forward direction."""
    summed: int
    """Keys of the tile, in the forward direction."""
    warps: int
    """Warps of a thread block."""
    stages: int
    """Software pipelining stages."""
    descriptors: bool = False
    """True where tiles along the summed axes are read through tensor descriptors."""


AttentionRule = Mapping[int, AttentionTile]
"""Default tiles by the larger of the head dimension and the columns, as a power of two from 64 to 256."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionTiles:
    """Numbers of fused attention and its gradients."""

    columns: int
    """Most columns of a tile. A tile usually has all columns, since thread blocks of other columns would compute the
    same P."""
    least_rows: int
    """Number of rows down to which tiles are halved so that no SM is idle."""
    least_warps: int
    """Fewest warps by default."""
    tiles_by_rows: int
    """Tiles of a gradient for each SM up to which it is quicker to start with the longest rows of all heads than to
    finish head after head, whose operands then stay in the L2 cache."""
    weights: AttentionRule
    """Tiles of a softmax-weighted sum of low-precision operands: the forward direction."""
    listed_weights: AttentionRule
    """The same over the blocks that a mask lists."""
    sums: AttentionRule
    """Tiles of another low-precision sum: a gradient."""
    pairs: AttentionRule
    """Tiles of two of them."""
    exact: AttentionRule
    """Tiles of ``f32``, exactly."""
    rounded: AttentionRule
    """Tiles of ``f32`` in TF32."""
    described_weights: AttentionRule
    """Tiles of ``weights`` that are quicker with tensor descriptors."""
    described_listed_weights: AttentionRule
    """The same of ``listed_weights``: lists pay earlier, since their loops compute more addresses."""
    described_sums: AttentionRule
    """The same of ``sums``."""
    described_listed_sums: AttentionRule
    """The same of sums over the blocks that a mask lists."""
    described_pairs: AttentionRule
    """The same of ``pairs``."""
    described_listed_pairs: AttentionRule
    """The same of pairs over the blocks that a mask lists."""
    described_points: int
    """Summed points from which descriptors pay."""
    large_pair: AttentionTile
    """Tile of two sums under a list up to a depth of 64, where scores and gradients are at least
    ``large_pair_operations``: in the larger tile of ``pairs`` registers spill."""
    large_pair_operations: int
    """Operations on floats of such scores: 16 for masks alone, 21 for ALiBi."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefetchLimits:
    """Numbers by which loads are issued before a phase computes."""

    registers: int
    """Registers of a thread that prefetched elements may take."""
    tile_registers: int
    """Most registers of a thread for the next tile of a loop over rows."""
    tile_share: float
    """Most of the registers that a thread can have for two tiles of such a loop and its accumulators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningLimits:
    """Bounds of the schedules that autotuning times."""

    registers: int
    """Registers of a thread for the elements of all buffers, or for the results of a matmul."""
    attention_registers: int
    """Registers of a thread for the accumulators and P of fused attention."""
    attention_shared_bytes: int
    """Bytes of shared memory for the operand tiles of fused attention in flight, where the chip has as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TileTable:
    """The numbers of one chip."""

    measured_on: str
    """The GPU that they were measured on (``H200``); for numbers that were not, words that say so and where they are
    from."""
    loops: LoopTiles
    """Numbers of reductions, scans and sorts."""
    maps: MapTiles
    """Numbers of maps and windows."""
    matmuls: MatmulTiles
    """Numbers of matmuls."""
    attention: AttentionTiles
    """Numbers of attention."""
    prefetch: PrefetchLimits
    """Numbers of early loads."""
    tuning: TuningLimits
    """Bounds of autotuning."""
