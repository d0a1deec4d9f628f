"""Clusters: the schedule of rows that the thread blocks of one divide, and the check that each of them has points."""

from __future__ import annotations

from litz_codegen_triton.emit.loops.tiles import next_power_of_two, tiling
from litz_codegen_triton.schedule.kernel_traits import KernelTraits
from litz_codegen_triton.schedule.request import names
from litz_codegen_triton.tables import Chip
from litz_ir.errors import CodegenError
from litz_ir.loops import Axis
from litz_ir.plan import InnerTile, Kernel, Tile, TileLoops


def parts_of_rows(traits: KernelTraits, row: Axis, divided: int, chip: Chip) -> TileLoops:
    """Return the schedule of a kernel that sums rows and columns.

    ``row`` is the outer axis along a row. A cluster of ``divided`` thread blocks divides it: each has a tile of the
    same columns in all rows.
    """
    part = next_power_of_two(-(-traits.extent([row]) // divided))
    rest = tuple(axis for axis in traits.outer if axis is not row)
    outer = (*((Tile(names(rest)),) if rest else ()), Tile((row.name,), part))
    inner = tuple(InnerTile(names(axes), 1, False) if axes else None for axes in traits.phases)
    model, tiles = chip.model, chip.tiles.loops
    warps = max(tiles.part_warps, min(model.max_warps, part // (model.warp_size * tiles.part_elements)))
    return TileLoops(outer, inner, warps, row_cluster=divided)


def check_clusters(kernel: Kernel) -> None:
    """Check that every thread block of a cluster has points, and holds them all. Raises ``CodegenError``."""
    for inner in tiling(kernel).inner:
        if inner is None or not inner.persistent or inner.cluster_size == 1:
            continue
        assert isinstance(inner.points_per_cta, int) and isinstance(inner.size, int), (
            "a persistent tile has a static size"
        )
        if (
            inner.points_per_cta > inner.block
            or inner.points_per_cta * (inner.cluster_size - 1) >= inner.size
        ):
            raise CodegenError(
                f"a cluster of {inner.cluster_size} thread blocks cannot reduce {inner.size} points of {kernel.name}",
                hint="each thread block needs at least one point, and a tile that holds all of its points",
            )
