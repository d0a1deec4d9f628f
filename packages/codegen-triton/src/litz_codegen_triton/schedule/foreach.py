"""The schedule of a foreach kernel: tiles of its own for each subkernel, and one number of warps for all."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from litz_codegen_triton.schedule.eviction import with_eviction
from litz_codegen_triton.schedule.index_width import with_dispatch_width, with_index_width
from litz_codegen_triton.schedule.prefetch import covered, with_prefetch
from litz_codegen_triton.schedule.request import check_request
from litz_codegen_triton.schedule.tile_loops import schedule_tile_loops
from litz_codegen_triton.tables import Chip, chip_of
from litz_ir.plan import Foreach, Kernel, TileLoops, TileRequest, invocations_of, with_schedules
from litz_ir.target import Capabilities


def schedule_foreach(kernel: Kernel, capabilities: Capabilities) -> Kernel:
    """Schedule a foreach kernel and each of its subkernels, which share the SMs equally.

    Thread blocks have the largest number of warps that a request with blocks names. Without such a request they have
    the largest number that a subkernel's own schedule has, at most ``foreach_warps``. The tiles of the other subkernels
    are scaled to that number of warps. Raises ``CodegenError``.
    """
    chip = chip_of(capabilities)
    chip = replace(chip, model=replace(chip.model, sm_count=sms_of_subkernel(kernel, capabilities)))
    requested_warps: list[int] = []
    found: list[TileLoops] = []
    for subkernel in kernel.subkernels:
        request = subkernel.kernel.schedule
        assert isinstance(request, TileRequest), "all subkernels of a foreach kernel are scheduled at once"
        check_request(subkernel.kernel, request)
        found.append(schedule_tile_loops(subkernel.kernel, request, chip))
        if request.blocks:
            requested_warps.append(request.warps)
    largest = max(loops.warps for loops in found)
    warps = max(requested_warps) if requested_warps else min(largest, chip.tiles.loops.foreach_warps)
    schedules = []
    for subkernel, own in zip(kernel.subkernels, found, strict=True):
        loops = with_eviction(subkernel.kernel, _with_warps(own, warps, chip))
        loops = with_prefetch(subkernel.kernel, loops, covered(loops), chip)
        schedules.append(with_index_width(subkernel.kernel, loops))
    launch = Foreach(warps)
    scheduled = with_schedules(kernel, [launch, *schedules])
    return with_schedules(kernel, [with_dispatch_width(scheduled, launch), *schedules])


def sms_of_subkernel(kernel: Kernel, capabilities: Capabilities) -> int:
    """Return the SMs that one invocation of a foreach kernel can count on, at least 1."""
    return max(1, capabilities.model.sm_count // len(invocations_of(kernel)))


def _with_warps(loops: TileLoops, warps: int, chip: Chip) -> TileLoops:
    """Scale the tile to another number of warps, so that a thread keeps its number of points where that is possible."""
    rows = prod(tile.block for tile in loops.outer)
    length = max((each.block for each in loops.inner if each is not None), default=1)
    warp_size, tiles = chip.model.warp_size, chip.tiles.loops
    points_per_thread = max(tiles.subkernel_elements, rows * length // (warp_size * loops.warps))
    outer = loops.outer
    if outer:
        # A tile of whole rows has more or fewer of them.
        scaled = max((k for k, tile in enumerate(outer[:-1]) if tile.block > 1), default=len(outer) - 1)
        tile = outer[scaled]
        limit = max(tile.block, tiles.largest_tile * tile.block // (rows * length))
        block = max(1, min(tile.block * warps // loops.warps, limit))
        outer = (*outer[:scaled], replace(tile, block=block), *outer[scaled + 1 :])
        rows = rows * block // tile.block
    longest = max(1, points_per_thread * warp_size * warps // rows)
    inner = tuple(
        replace(tile, block=longest, persistent=False) if tile is not None and tile.block > longest else tile
        for tile in loops.inner
    )
    return replace(loops, outer=outer, inner=inner, warps=warps)
