"""Validation of tile requests, and block sizes read from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from litz_ir.errors import CodegenError
from litz_ir.loops import Axis
from litz_ir.plan import Kernel, TileRequest


def check_request(kernel: Kernel, request: TileRequest) -> None:
    """Check a request. Raises ``CodegenError`` for a block that is no power of two, or for an unknown axis."""
    axes = [axis.name for axis in (*kernel.outer, *(axis for phase in kernel.phases for axis in phase.axes))]
    for name, block in request.blocks:
        if name not in axes or block < 1 or block & (block - 1):
            raise CodegenError(
                f"the schedule of {kernel.name} gives axis {name!r} a block of {block}",
                hint=f"a block is a power of two on one of the axes {', '.join(sorted(set(axes)))}",
            )


def named_block(axes: Iterable[Axis], named: Mapping[str, int], least: int) -> int:
    """Multiply the blocks of the axes of one dimension; axes that are not named count as 1, the result is at least
    ``least``."""
    block = 1
    for axis in axes:
        block *= named.get(axis.name, 1)
    return max(block, least)


def names(axes: Iterable[Axis]) -> tuple[str, ...]:
    """Return the names of axes, in their order."""
    return tuple(axis.name for axis in axes)
