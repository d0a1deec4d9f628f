"""Grid sizes of launches, as terms of a kernel's symbols."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from litz_codegen_triton.emit.loops.tiles import Tiling, tiling
from litz_ir.plan import Kernel
from litz_ir.symbols import Size, add, substitute


def grid_size(kernel: Kernel) -> Size:
    """Return the number of CTAs of a launch. Raises ``CodegenError`` for a kernel that is not scheduled for a GPU."""
    if not kernel.subkernels:
        return tiling(kernel).grid_size
    return add(*subkernel_grids(kernel, [tiling(each.kernel) for each in kernel.subkernels]))


def subkernel_grids(kernel: Kernel, tilings: Sequence[Tiling]) -> Iterator[Size]:
    """Yield the number of CTAs of each invocation of a foreach kernel; ``tilings`` has one entry per subkernel."""
    for subkernel, tiles in zip(kernel.subkernels, tilings, strict=True):
        for invocation in subkernel.invocations:
            names = (info.name for info in subkernel.kernel.symbols)
            yield substitute(tiles.grid_size, dict(zip(names, invocation.symbols, strict=True)))
