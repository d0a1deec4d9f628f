"""The schedules of a foreach kernel's subkernels: each kind has its own tiles, and thread blocks of one size."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from litz_codegen_triton.emit.tiles import WARP
from litz_codegen_triton.schedule.prefetch import covered, with_prefetch
from litz_codegen_triton.schedule.request import check_request
from litz_codegen_triton.schedule.tile_loops import LARGEST_TILE, schedule_tile_loops
from litz_ir.plan import Foreach, Kernel, TileLoops, TileRequest, invocations_of, with_schedules
from litz_ir.target import Capabilities

MOST_WARPS = 8
"""The warps of a program: with more of them a thread has too few registers for tiles that were made for fewer."""

MAX_SUBKERNEL_ELEMENTS = 32
"""The points of a tile that a thread has, where its kind alone would have fewer: longer rows are read in pieces."""


def schedule_foreach(kernel: Kernel, capabilities: Capabilities) -> Kernel:
    """A foreach kernel with the schedule of its launch and of each subkernel. These share the SMs, and programs have
    the most warps that requests of subkernels name, else those of the kind that wants most, up to a limit: the tiles of
    the others are as much larger or smaller. Raises ``CodegenError``."""
    sm_count = sms_of_subkernel(kernel, capabilities)
    asked: list[int] = []
    found: list[TileLoops] = []
    for part in kernel.subkernels:
        request = part.kernel.schedule
        assert isinstance(request, TileRequest), "subkernels are scheduled together"
        check_request(part.kernel, request)
        found.append(schedule_tile_loops(part.kernel, request, sm_count))
        if request.blocks:
            asked.append(request.warps)
    warps = max(asked) if asked else min(max(loops.warps for loops in found), MOST_WARPS)
    own = [_with_warps(loops, warps) for loops in found]
    pairs = zip(kernel.subkernels, own, strict=True)
    parts = [with_prefetch(part.kernel, loops, covered(loops)) for part, loops in pairs]
    return with_schedules(kernel, [Foreach(warps), *parts])


def sms_of_subkernel(kernel: Kernel, capabilities: Capabilities) -> int:
    """The share that a subkernel of a foreach kernel has of a device's SMs, one at the least."""
    return max(1, capabilities.sm_count // len(invocations_of(kernel)))


def _with_warps(loops: TileLoops, warps: int) -> TileLoops:
    """The same number of points for each thread of more warps, or of fewer, as far as tiles go."""
    rows = prod(tile.block for tile in loops.outer)
    length = max((each.block for each in loops.inner if each is not None), default=1)
    each = max(MAX_SUBKERNEL_ELEMENTS, rows * length // (WARP * loops.warps))
    outer = loops.outer
    if outer:
        *others, last = outer
        most = max(last.block, LARGEST_TILE * last.block // (rows * length))
        block = max(1, min(last.block * warps // loops.warps, most))
        outer = (*others, replace(last, block=block))
        rows = rows * block // last.block
    piece = max(1, each * WARP * warps // rows)
    inner = tuple(
        replace(one, block=piece, persistent=False) if one is not None and one.block > piece else one
        for one in loops.inner
    )
    return replace(loops, outer=outer, inner=inner, warps=warps)
