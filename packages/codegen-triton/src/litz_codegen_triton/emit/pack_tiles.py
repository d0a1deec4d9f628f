"""The tiles of a pack's loops: each kind has its own, and a program of the same number of warps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from litz_codegen_triton.emit.blocks import LARGEST_TILE, plain_tiling, tiling
from litz_codegen_triton.emit.tiles import WARP, Tiling
from litz_ir.plan import Kernel, loops_of
from litz_ir.symbols import Size, add, substitute

MOST_WARPS = 8
"""The warps of a program: with more of them a thread has too few registers for tiles that were made for fewer."""

MOST_ELEMENTS = 32
"""The points of a tile that a thread has, where its kind alone would have fewer: longer rows are read in pieces."""


def pack_tilings(kernel: Kernel, processors: int = 132) -> tuple[Tiling, ...]:
    """The tiles of each part of a pack. Its loops share the processors, and programs have the most warps that schedules
    of parts ask for, else those of the kind that wants most, up to a limit: the tiles of the others are as much larger
    or smaller. Raises ``CodegenError``."""
    own = processors_of_loop(kernel, processors)
    found = [plain_tiling(part.kernel, own) for part in kernel.parts]
    asked = [part.kernel.schedule.warps for part in kernel.parts if part.kernel.schedule.blocks]
    warps = max(asked) if asked else min(max(tiles.warps for tiles in found), MOST_WARPS)
    return tuple(_with_warps(tiles, warps) for tiles in found)


def processors_of_loop(kernel: Kernel, processors: int) -> int:
    """The share that a loop of a pack has of so many processors."""
    return max(1, processors // len(loops_of(kernel)))


def _with_warps(tiles: Tiling, warps: int) -> Tiling:
    """The same number of points for each thread of more warps, or of fewer, as far as tiles go."""
    rows = prod(dim.block for dim in tiles.outer)
    length = max((each.block for each in tiles.inner if each is not None), default=1)
    each = max(MOST_ELEMENTS, rows * length // (WARP * tiles.warps))
    outer = tiles.outer
    if outer:
        *others, last = outer
        most = max(last.block, LARGEST_TILE * last.block // (rows * length))
        block = max(1, min(last.block * warps // tiles.warps, most))
        outer = (*others, replace(last, block=block))
        rows = rows * block // last.block
    piece = max(1, each * WARP * warps // rows)
    inner = tuple(
        replace(one, block=piece, persistent=False) if one is not None and one.block > piece else one
        for one in tiles.inner
    )
    return replace(tiles, outer=outer, inner=inner, warps=warps)


def loop_programs(kernel: Kernel, tilings: tuple[Tiling, ...]) -> Iterator[Size]:
    """How many programs each loop of a pack has, over the pack's symbols."""
    for part, tiles in zip(kernel.parts, tilings, strict=True):
        for binding in part.bindings:
            names = (info.name for info in part.kernel.symbols)
            yield substitute(tiles.programs, dict(zip(names, binding.symbols, strict=True)))


def programs_of(kernel: Kernel, processors: int = 132) -> Size:
    """How many programs a launch of a kernel has on a device with so many processors."""
    if not kernel.parts:
        return tiling(kernel, processors).programs
    return add(*loop_programs(kernel, pack_tilings(kernel, processors)))
