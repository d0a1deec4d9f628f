"""The table of ``sm_90``, measured on an H200 with kernels that move 256 MB and more; attention of low precision on an
H100 too."""

from __future__ import annotations

from types import MappingProxyType

from litz_codegen_triton.tables.tiles import (
    AttentionRule,
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
from litz_ir.dtypes import bf16, f8e4m3fn, f8e5m2, f16, f32, i8

_Tile = AttentionTile


def _rule(tiles: dict[int, AttentionTile]) -> AttentionRule:
    return MappingProxyType(tiles)


_WEIGHTS = {64: _Tile(64, 64, 4, 3), 128: _Tile(64, 64, 4, 3), 256: _Tile(128, 64, 8, 2)}
_SUMS = {64: _Tile(64, 64, 4, 3), 128: _Tile(64, 64, 4, 2), 256: _Tile(64, 64, 8, 2)}
_DESCRIBED_WEIGHTS = {256: _Tile(128, 64, 8, 2, True)}
_DESCRIBED_SUMS = {256: _Tile(64, 64, 4, 2, True)}
_DESCRIBED_PAIRS = {256: _Tile(64, 64, 8, 2, True)}

HOPPER = TileTable(
    measured_on="H200",
    loops=LoopTiles(
        transposed_tile=8192,
        elements=16,
        paired_elements=32,
        looped_elements=4,
        multiword_scan_warps=16,
        persistent_row=16384,
        cluster_elements=32768,
        looped_row=4096,
        # Cross-entropy of 128,256 classes in bf16 takes 66 us, 69 with one load, 72 with twice the warps.
        exponentials_bytes=16 << 10,
        exponentials_warps=16,
        reread_row=8192,
        column_tile=4096,
        staged_tile_bytes=4096,
        staged_thread_bytes=32,
        light_states=3,
        accumulators=128,  # of 255 registers for everything
        stored_columns=(64, 32),
        stored_tile=1024,
        stored_stages=2,
        chunked_row=16384,
        chunked_tile=2048,
        nested_reduction_tile=1024,
        # Sums over 16,384 x 4,096 in f32 take 67.8 us with three, 64.4 with four and 66.4 with five.
        column_stages=4,
        row_stages=3,
        staged_bytes=48 << 10,
        sorted_tile=1024,
        sorted_elements=8,
        short_rows_tile=1024,
        columns=64,
        # On an H100 ReLU's gradient with sums over 200,704 x 256 takes 197 us in 256 thread blocks, 273 in 512; in
        # clusters the other way round.
        wave_sixteenths=15,
        column_warps=16,
        largest_tile=32768,
        row_bytes=64,
        large_row_bytes=128,
        large_row=32 << 10,
        part_warps=16,
        part_elements=16,
        foreach_warps=8,
        subkernel_elements=32,
    ),
    maps=MapTiles(
        threads=256,
        least_tile=128,
        window_threads=128,
        window_itemsize=4,
        high_cost=16,
        costly_loads=2,
        gathered_loads=4,
        square_tile=64,
        square_elements=32,
        dominant=4,
        point_registers=192,  # of 255
    ),
    matmuls=MatmulTiles(
        blocks=MappingProxyType(
            {
                **dict.fromkeys((bf16, f16, f8e4m3fn, f8e5m2, i8), BlockLimits(128, 32)),
                f32: BlockLimits(64, 32),
            }
        ),
        stage_bytes=32 << 10,  # every chip has shared memory for so many stages
        stages=3,
        group=8,
        block_k=256,
        gathered_k=64,
        gathered_bytes=64,
        eight_warp_results=128 * 128,
    ),
    attention=AttentionTiles(
        columns=256,
        least_rows=64,  # M of a warp group's MMA
        least_warps=4,  # one warp group
        tiles_by_rows=16,
        weights=_rule(_WEIGHTS),
        listed_weights=_rule({**_WEIGHTS, 64: _Tile(64, 128, 4, 3)}),
        sums=_rule(_SUMS),
        pairs=_rule({**_SUMS, 64: _Tile(64, 128, 4, 2)}),
        exact=_rule({64: _Tile(64, 32, 8, 2), 128: _Tile(32, 16, 8, 2), 256: _Tile(16, 16, 8, 2)}),
        rounded=_rule({64: _Tile(64, 32, 4, 2), 128: _Tile(64, 32, 8, 2), 256: _Tile(32, 16, 8, 2)}),
        described_weights=_rule(_DESCRIBED_WEIGHTS),
        described_listed_weights=_rule(
            {**_DESCRIBED_WEIGHTS, 64: _Tile(64, 128, 4, 2, True), 128: _Tile(64, 64, 4, 3, True)}
        ),
        described_sums=_rule(_DESCRIBED_SUMS),
        described_listed_sums=_rule(
            {**_DESCRIBED_SUMS, 64: _Tile(64, 64, 4, 2, True), 128: _Tile(64, 64, 4, 2, True)}
        ),
        described_pairs=_rule(_DESCRIBED_PAIRS),
        described_listed_pairs=_rule({**_DESCRIBED_PAIRS, 128: _Tile(64, 64, 4, 2, True)}),
        # Timed where each thread block made its own, in about a microsecond: causal attention over 512 points is 9%
        # slower with them, over 2,048 it is 6 to 25% faster.
        described_points=2048,
        # ALiBi takes 0.258 ms, 0.322 in the larger tile, which is faster for masks alone.
        large_pair=_Tile(64, 64, 4, 2, True),
        large_pair_operations=20,
    ),
    prefetch=PrefetchLimits(
        registers=64,  # a quarter of those that a thread can have
        # More bytes are in flight without it: the gradient of an RMS norm of 4,096 elements takes 237 us without it and
        # 205 with it in bf16, 202 and 205 in f32.
        tile_registers=24,
        # With 7/8 the gradient of an RMS norm of 16,384 elements takes 277 us instead of 229.
        tile_share=5 / 8,
    ),
    tuning=TuningLimits(
        registers=128,
        attention_registers=192,
        attention_shared_bytes=192 << 10,
    ),
)
"""The numbers of ``sm_90``."""
