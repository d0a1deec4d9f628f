"""Grid sizes: the programs of a launch, over a kernel's symbols."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from litz_codegen_triton.emit.tiles import Tiling, tiling
from litz_ir.plan import Kernel
from litz_ir.symbols import Size, add, substitute


def grid_size(kernel: Kernel) -> Size:
    """The programs of a launch of a scheduled kernel. Raises ``CodegenError``."""
    if not kernel.subkernels:
        return tiling(kernel).grid_size
    return add(*subkernel_grids(kernel, [tiling(part.kernel) for part in kernel.subkernels]))


def subkernel_grids(kernel: Kernel, tilings: Sequence[Tiling]) -> Iterator[Size]:
    """The programs of each loop of a foreach kernel, whose kinds have these tiles, over the kernel's symbols."""
    for part, tiles in zip(kernel.subkernels, tilings, strict=True):
        for binding in part.invocations:
            names = (info.name for info in part.kernel.symbols)
            yield substitute(tiles.grid_size, dict(zip(names, binding.symbols, strict=True)))
