"""The schedule of loops over tiles: tile sizes, warps and stages of maps, reductions, scans and sorts.

The request decides where it names blocks. Otherwise the aim is threads in flight: each thread moves 16 bytes with one
load, and as many threads run as an SM holds, which hides more memory latency than several loads a thread do. Rows stay
in registers while they fit, and no tile is so large that an SM is idle. The numbers are those of the chip's table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from litz_codegen_triton.emit.indexing.statements import can_prefetch, values_of
from litz_codegen_triton.emit.loops.tiles import next_power_of_two
from litz_codegen_triton.schedule.clusters import check_clusters, parts_of_rows
from litz_codegen_triton.schedule.kernel_traits import KernelTraits, sorts
from litz_codegen_triton.schedule.map_tiles import (
    fitting,
    flattened,
    outer_tiles,
    schedule_map,
    schedule_windows,
)
from litz_codegen_triton.schedule.register_pressure import index_words
from litz_codegen_triton.schedule.request import named_block, names
from litz_codegen_triton.schedule.row_threads import row_threads
from litz_codegen_triton.tables import Chip
from litz_ir.dtypes import f32
from litz_ir.errors import CodegenError
from litz_ir.loops import Axis
from litz_ir.plan import InnerTile, Kernel, ScanStore, Tile, TileLoops, TileRequest
from litz_ir.scalar import indirects_in, loads
from litz_ir.symbols import product


def schedule_tile_loops(kernel: Kernel, request: TileRequest, chip: Chip) -> TileLoops:
    """Schedule a kernel without matmuls for a device.

    Raises ``CodegenError`` when a request names more outer axes than a tile has dimensions, or a cluster with more
    thread blocks than there are points.
    """
    chooser = _Chooser(kernel, request, chip)
    schedule = chooser.requested() if request.blocks else chooser.default()
    check_clusters(replace(kernel, schedule=schedule))
    return schedule


class _Chooser:
    """The choice of one kernel's tiles."""

    def __init__(self, kernel: Kernel, request: TileRequest, chip: Chip) -> None:
        self.kernel = kernel
        self.request = request
        self.chip = chip
        self.model = chip.model
        self.tiles = chip.tiles.loops
        self.traits = KernelTraits(kernel)
        self.outer = self.traits.outer
        self.phases = self.traits.phases
        self.cluster = request.cluster

    def points_per_cta(self, axes: Sequence[Axis]) -> int:
        """Return the hinted number of points that a thread block has of inner axes."""
        return -(-self.traits.extent(axes) // self.cluster)

    # --- the tiles of a request ---

    def requested(self) -> TileLoops:
        """Return the schedule with the blocks that the request names."""
        blocks = dict(self.request.blocks)
        by_name = {axis.name: axis for axis in self.outer}
        named = [by_name[name] for name in blocks if name in by_name]
        if len(named) > 2:
            raise CodegenError(
                f"the tile request of {self.kernel.name} names {len(named)} outer axes",
                hint="a tile has at most two outer dimensions that are larger than one point",
            )
        outer = outer_tiles(self.outer, named, [blocks[axis.name] for axis in named])
        inner = tuple(self.requested_inner(k, blocks) for k in range(len(self.phases)))
        stages = self.request.stages or self.stages(outer, inner)
        divided = self.request.row_cluster
        return TileLoops(outer, inner, self.request.warps, stages, self.cluster, row_cluster=divided)

    def requested_inner(self, phase: int, blocks: Mapping[str, int]) -> InnerTile | None:
        """Return the requested cover of a phase's own axes; without a named block it has up to 1024 points."""
        serial, axes = self.split(phase)
        if not axes:
            return None
        size = product(axis.size for axis in axes)
        block = named_block(axes, blocks, 1)
        length = next_power_of_two(self.points_per_cta(axes))
        block = min(block if block > 1 else 1024, length)
        fits = isinstance(size, int) and self.points_per_cta(axes) <= block
        return InnerTile(names(axes), block, fits, names(serial))

    def split(self, phase: int) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
        """Divide a phase's own axes into serial ones and tiled ones; a scan is tiled along its last axis alone."""
        axes = self.phases[phase]
        scans = any(isinstance(s, ScanStore) for s in self.kernel.phases[phase].statements)
        return (axes[:-1], axes[-1:]) if scans else ((), axes)

    # --- the default ---

    def default(self) -> TileLoops:
        """Return the schedule where the request names no blocks."""
        if not any(self.phases):
            return schedule_map(self.traits, self.chip)
        if self.cluster == 1 and self.traits.reduces_windows():
            return schedule_windows(self.traits, self.chip)
        row = self.traits.summed_row()
        if row is not None and self.request.row_cluster > 1:
            return parts_of_rows(self.traits, row, self.request.row_cluster, self.chip)
        if row is not None and next_power_of_two(self.traits.extent([row])) <= self.tiles.chunked_row:
            return self.rows_in_chunks(row)
        columns = self.traits.is_contiguous_along_outer()
        if columns and self.stores_columns():
            return self.stored_columns()
        rows = self.traits.extent(self.outer) * self.cluster
        longest = max(
            (k for k in range(len(self.phases)) if self.phases[k]),
            key=lambda k: self.traits.extent(self.phases[k]),
        )
        if sorts(self.kernel):
            return self.sorting(longest, rows, columns)
        block, x, persistent = (self.column_tile if columns else self.row_tile)(longest, rows)
        if self.traits.has_nested_reductions():
            block = max(1, min(block, self.tiles.nested_reduction_tile // x))
        inner = tuple(self.default_inner(k, block, persistent) for k in range(len(self.phases)))
        outer = flattened(self.outer, x)
        warps = self.warps_for_registers(self.warps(x, block, columns, persistent), x * block)
        return TileLoops(outer, inner, warps, self.stages(outer, inner), self.cluster)

    def rows_in_chunks(self, row: Axis) -> TileLoops:
        """Return the schedule of sums over rows and over columns: whole rows, a few of a chunk at a time."""
        length = next_power_of_two(self.traits.extent([row]))
        across = [axis for axes in self.phases for axis in axes[-1:]]
        block = max(1, self.tiles.chunked_tile // length, self.rows_of_sectors(across, [row], length))
        rest = tuple(axis for axis in self.outer if axis is not row)
        outer = (*((Tile(names(rest)),) if rest else ()), Tile((row.name,), length))
        inner = tuple(self.default_inner(k, block, False) for k in range(len(self.phases)))
        warps = max(
            1, min(self.model.max_warps, length * block // (self.model.warp_size * self.tiles.elements))
        )
        return TileLoops(outer, inner, warps, self.staged(length, inner, self.tiles.row_stages))

    def stores_columns(self) -> bool:
        """True where elements of chunks of rows are stored, and are contiguous along enough columns for a tile."""
        chunked = self.cluster == 1 and len(self.outer) > 1 and self.traits.stores_rows()
        column = self.outer[-1] if chunked else None
        if column is None or self.traits.extent([column]) < min(self.tiles.stored_columns):
            return False
        traffic = self.traits.unit_stride_bytes()
        return traffic[column.name] == max(traffic.values())

    def stored_columns(self) -> TileLoops:
        """Return the schedule of elements that are stored and whose columns are summed, in chunks of rows."""
        *rest, column = self.outer
        extent = self.traits.extent([column])
        x = min(self.tiles.stored_columns, key=lambda columns: -(-extent // columns) * columns)
        outer = (Tile(names(rest)), Tile((column.name,), x))
        inner = tuple(
            self.default_inner(k, self.tiles.stored_tile // x, False) for k in range(len(self.phases))
        )
        itemsize = self.traits.row_itemsize()
        warps = max(
            1, self.tiles.stored_tile * itemsize // (self.model.warp_size * self.tiles.staged_thread_bytes)
        )
        stages = self.staged(x, inner, self.tiles.stored_stages) if itemsize < f32.itemsize else 1
        return TileLoops(outer, inner, self.warps_for_registers(warps, self.tiles.stored_tile), stages)

    def sorting(self, phase: int, rows: int, columns: bool) -> TileLoops:
        """Return the schedule of a sort: several short rows, one long row, or the columns of a memory sector."""
        block = next_power_of_two(self.traits.extent(self.split(phase)[1]))
        sector = max(1, self.model.sector_bytes // self.traits.max_itemsize())
        least = min(sector if columns else 1, next_power_of_two(rows))
        x = max(least, self.rows_per_cta(max(1, self.tiles.sorted_tile // block), rows))
        inner = tuple(self.default_inner(k, block, True) for k in range(len(self.phases)))
        warps = max(
            1, min(self.model.max_warps, x * block // (self.model.warp_size * self.tiles.sorted_elements))
        )
        return TileLoops(flattened(self.outer, x), inner, warps)

    def warps(self, x: int, block: int, columns: bool, persistent: bool) -> int:
        """Return the warps for a tile of ``x`` rows, or columns, and ``block`` elements of each."""

        def at(elements: int) -> int:
            return next_power_of_two(x * block // (self.model.warp_size * elements))

        traits = self.traits
        if traits.has_nested_reductions():
            wanted = at(self.tiles.elements // 2)
        elif traits.reduces_pairs():
            wanted = at(self.tiles.paired_elements)
        elif columns and not persistent and self.has_small_column_tiles():
            wanted = at(self.column_elements())
        elif columns or (not persistent and x > 1):
            wanted = at(self.tiles.elements)
        elif persistent:
            wanted = row_threads(traits, x * block, self.tiles) // self.model.warp_size
        elif traits.sums_exponentials() and sum(bool(axes) for axes in self.phases) == 1:
            wanted = min(at(self.tiles.looped_elements), self.tiles.exponentials_warps)
        else:
            wanted = min(
                at(self.tiles.looped_elements),
                self.tiles.multiword_scan_warps if traits.has_multiword_scan() else self.model.max_warps,
            )
        return max(
            1, min(wanted, self.tiles.column_warps if columns and not persistent else self.model.max_warps)
        )

    def warps_for_registers(self, warps: int, elements: int) -> int:
        """Double the warps of a tile of ``elements`` while a thread has too few registers for its points."""
        model, limit = self.model, fitting(self.traits, elements, self.chip)
        while warps < model.full_register_warps and elements // (model.warp_size * warps) > limit:
            warps *= 2
        return warps

    def default_inner(self, phase: int, block: int, persistent: bool) -> InnerTile | None:
        """Return the cover of a phase's own axes by a tile of at most ``block`` points."""
        serial, axes = self.split(phase)
        if not axes:
            return None
        size = product(axis.size for axis in axes)
        own = min(block, next_power_of_two(self.points_per_cta(axes)))
        fits = persistent and isinstance(size, int) and self.points_per_cta(axes) <= own
        return InnerTile(names(axes), own, fits, names(serial))

    def row_tile(self, phase: int, rows: int) -> tuple[int, int, bool]:
        """Return elements of a row, rows of a thread block, and whether the row is persistent."""
        _, axes = self.split(phase)
        length = next_power_of_two(self.points_per_cta(axes))
        static = isinstance(product(axis.size for axis in axes), int)
        limit = self.tiles.persistent_row // max(1, self.traits.live_rows() - 2)
        if self.cluster > 1:
            limit = self.tiles.cluster_elements // self.traits.loaded_rows()
        persistent = static and length <= limit
        rereads = sum(bool(axes) for axes in self.phases) > 1
        looped = self.tiles.reread_row if rereads else self.tiles.looped_row
        if not rereads and self.traits.sums_exponentials():
            looped = self.tiles.exponentials_bytes // self.traits.row_bytes()
            looped = 1 << max(0, looped.bit_length() - 1)
        if self.traits.has_multiword_scan() and index_words(self.kernel) > 1:
            looped //= 2  # both indices and values need two registers each
        block = length if persistent else min(length, looped)
        x = max(1, self.tiles.short_rows_tile // block, self.rows_of_sectors(self.outer[-1:], axes, block))
        return block, self.rows_per_cta(x, rows), persistent

    def rows_of_sectors(self, across: Sequence[Axis], along: Sequence[Axis], block: int) -> int:
        """Return the rows, of ``block`` elements ``along`` them in a tile, of which accesses that are contiguous
        ``across`` rows read whole sectors; 1 where there are none."""
        itemsize = self.traits.itemsize_across(across, along)
        if not itemsize:
            return 1
        return max(1, min(self.model.sector_bytes // itemsize, self.tiles.transposed_tile // block))

    def column_tile(self, phase: int, rows: int) -> tuple[int, int, bool]:
        """Return elements of a column, columns of a thread block, and whether the column is persistent."""
        _, axes = self.split(phase)
        length = next_power_of_two(self.points_per_cta(axes))
        static = isinstance(product(axis.size for axis in axes), int)
        itemsize = self.traits.row_itemsize() if self.cluster > 1 else self.traits.max_itemsize()
        sector = max(1, self.model.sector_bytes // itemsize)
        least = 2 * self.model.sm_count * (self.tiles.wave_sixteenths if self.cluster == 1 else 16) // 16
        x = max(sector, self.rows_per_cta(min(self.tiles.columns, next_power_of_two(rows)), rows, least))
        block = min(length, max(1, self.tiles.column_tile // x))
        if block < length and self.cluster > 1:
            block = max(1, self.tiles.staged_tile_bytes // (x * itemsize))
        elif block < length and self.has_small_column_tiles():
            block = max(1, block // 4)
        return block, min(x, next_power_of_two(rows)), static and length == block

    def has_small_column_tiles(self) -> bool:
        """True where loops down columns have a quarter of ``column_tile``."""
        return self.cluster > 1 or self.traits.accumulated_values() > self.tiles.light_states

    def column_elements(self) -> int:
        """Return the elements of a thread in a small tile of columns."""
        elements = self.tiles.elements // 2
        if self.cluster > 1:
            elements = max(1, self.tiles.staged_thread_bytes // self.traits.row_itemsize())
        while elements > 1 and elements * self.traits.accumulated_values() > self.tiles.accumulators:
            elements //= 2
        return elements

    def stages(self, outer: Sequence[Tile], inner: Sequence[InnerTile | None]) -> int:
        """Return the software pipelining stages of loops that only accumulate, 1 where a load has an indirect index."""
        if self.cluster == 1 or not self.traits.is_contiguous_along_outer():
            return 1
        return self.staged(prod(dim.block for dim in outer), inner, self.tiles.column_stages)

    def staged(self, columns: int, inner: Sequence[InnerTile | None], stages: int) -> int:
        """Return ``stages`` for loops over tiles of ``columns`` columns, 1 where shared memory is too small."""
        stage_bytes = 0
        for phase, each in zip(self.kernel.phases, inner):
            if each is not None and not each.persistent and can_prefetch(phase.statements):
                found = set(
                    loads(*(value for statement in phase.statements for value in values_of(statement)))
                )
                if any(indirects_in(load.index[0]) for load in found):
                    return 1
                nbytes = sum(load.dtype.itemsize for load in found) * each.block * columns
                stage_bytes = max(stage_bytes, nbytes)
        return stages if 0 < stage_bytes * stages <= self.tiles.staged_bytes else 1

    def rows_per_cta(self, x: int, rows: int, least: int = 0) -> int:
        """Return at most ``x`` rows of a CTA, fewer if there were fewer than ``least`` CTAs, by default two an SM."""
        x = min(x, next_power_of_two(rows))
        while x > 1 and rows // x < (least or 2 * self.model.sm_count):
            x //= 2
        return x
