"""Factors of products of matrices that a descriptor of their memory can give by tiles.

The machine then reads whole tiles, knows where memory ends, and computes no address for a thread.
"""

from __future__ import annotations

from dataclasses import dataclass

from litz_codegen_triton.emit.coordinates import TileIndices
from litz_ir.plan import Accumulate, Kernel
from litz_ir.scalar import Expr, Load, indirects_in, substitute_expr
from litz_ir.symbols import coefficient, substitute, symbol

DESCRIPTOR_ALIGNMENT = 16
"""Bytes of which the start of the memory, and the distance between its lines, are multiples."""

MAX_BLOCK = 256
"""The most points of a tile along a dimension."""


@dataclass(frozen=True, slots=True)
class TileDimension:
    """A dimension of a factor's tile: the name of its index, how many points there are, and how many a tile has."""

    index: str
    size: int
    block: int


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Elements of ``buffer`` from ``start`` on: ``slow`` is the dimension whose points are ``stride`` elements apart,
    the points of ``fast`` are neighbours. ``transposed`` says that a tile's first dimension is the fast one."""

    buffer: str
    start: int
    stride: int
    slow: TileDimension
    fast: TileDimension
    transposed: bool


def contraction_operands(coordinates: TileIndices) -> tuple[Expr, Expr]:
    """The left and the right factor of a kernel's contraction, each over the summed points of its own tile."""
    found = coordinates.tiles.contraction
    assert found is not None
    (statement,) = coordinates.phases[found.phase]
    assert isinstance(statement, Accumulate)
    left, right = found.operands(statement)
    own, other = coordinates.summed
    return left, substitute_expr(right, {own: symbol(other)})


def descriptors(coordinates: TileIndices) -> tuple[Descriptor | None, Descriptor | None]:
    """What describes the memory of both factors of a kernel's contraction; ``None`` for one that is not read so."""
    tiles, found = coordinates.tiles, coordinates.tiles.contraction
    inner = None if found is None else tiles.inner[found.phase]
    if inner is None or not isinstance(inner.size, int) or not coordinates.narrow():
        return None, None
    lines = []
    for dim, index in zip(tiles.outer[-2:], coordinates.summed, strict=True):
        if not isinstance(dim.size, int):
            return None, None
        own = TileDimension(coordinates.indices[dim.letter], dim.size, dim.block)
        lines.append((own, TileDimension(index, inner.size, inner.block)))
    (row, depth), (column, height) = lines
    left, right = contraction_operands(coordinates)
    kernel = coordinates.kernel
    return _descriptor(kernel, left, row, depth), _descriptor(kernel, right, height, column)


def _descriptor(
    kernel: Kernel, factor: Expr, first: TileDimension, second: TileDimension
) -> Descriptor | None:
    """What describes the memory of a factor over two dimensions of a tile; ``None`` where the machine cannot read it
    so: it is computed, looked up or written to, no dimension runs along neighbours, or lines do not begin where they
    must."""
    if not isinstance(factor, Load) or factor.dtype.itemsize < 2 or any(map(indirects_in, factor.index)):
        return None
    if any(each.name == factor.buffer and each.access != "in" for each in kernel.parameters):
        return None
    (offset,) = factor.index
    steps = [coefficient(offset, line.index) for line in (first, second)]
    start = substitute(offset, {first.index: 0, second.index: 0})
    if not isinstance(start, int) or not all(isinstance(step, int) for step in steps) or 1 not in steps:
        return None
    turned = steps[1] != 1
    (stride, _), (slow, fast) = (steps[::-1], (second, first)) if turned else (steps, (first, second))
    assert isinstance(stride, int)
    size = factor.dtype.itemsize
    whole = (
        start % (DESCRIPTOR_ALIGNMENT // size) == 0
        and stride % (DESCRIPTOR_ALIGNMENT // size) == 0
        and fast.block * size >= DESCRIPTOR_ALIGNMENT
    )
    if not whole or start < 0 or stride < fast.size or max(slow.block, fast.block) > MAX_BLOCK:
        return None
    return Descriptor(factor.buffer, start, stride, slow, fast, turned)
