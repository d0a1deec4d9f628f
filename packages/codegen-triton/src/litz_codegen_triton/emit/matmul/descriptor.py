"""Matmul operands that tensor descriptors can load.

With a descriptor the Tensor Memory Accelerator (TMA) copies whole tiles, fills them with zeros past the end of the
matrix, and spares the threads their address arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

from litz_codegen_triton.capabilities import NVIDIA
from litz_codegen_triton.emit.indexing.coordinates import TileIndices
from litz_ir.plan import Accumulate, Kernel
from litz_ir.scalar import Expr, Load, indirects_in, substitute_expr
from litz_ir.symbols import coefficient, substitute, symbol


@dataclass(frozen=True, slots=True)
class TileDimension:
    """A dimension of a matrix that tiles divide."""

    index: str
    """The name of its index."""
    size: int
    """Points of the dimension."""
    block: int
    """Points of a tile along it."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A matrix in memory as a tensor descriptor describes it."""

    buffer: str
    """The buffer that holds it."""
    start: int
    """The offset of its first element in the buffer, in elements."""
    stride: int
    """The stride of ``slow``, in elements; that of ``fast`` is 1."""
    slow: TileDimension
    """The strided dimension."""
    fast: TileDimension
    """The contiguous dimension."""
    transposed: bool
    """True where the first dimension of the operand's tile is ``fast``."""


def contraction_operands(coordinates: TileIndices) -> tuple[Expr, Expr]:
    """Return the left and the right operand of a matmul kernel's ``tl.dot``, each over the summed index of its tile."""
    found = coordinates.contraction
    assert found is not None, "the kernel is a matmul"
    (statement,) = coordinates.phases[found.phase]
    assert isinstance(statement, Accumulate)
    lhs, rhs = found.operands(statement)
    lhs_index, rhs_index = coordinates.summed
    return lhs, substitute_expr(rhs, {lhs_index: symbol(rhs_index)})


def descriptors(coordinates: TileIndices) -> tuple[Descriptor | None, Descriptor | None]:
    """Return the descriptors of the left and the right operand of a matmul; ``None`` for one that cannot have one."""
    tiles, found = coordinates.tiles, coordinates.contraction
    inner = None if found is None else tiles.inner[found.phase]
    if inner is None or not isinstance(inner.size, int) or not tiles.narrow:
        return None, None
    dimensions = []
    for dim, index in zip(tiles.outer[-2:], coordinates.summed, strict=True):
        if not isinstance(dim.size, int):
            return None, None
        outer = TileDimension(coordinates.indices[dim.letter], dim.size, dim.block)
        dimensions.append((outer, TileDimension(index, inner.size, inner.block)))
    (row, lhs_summed), (column, rhs_summed) = dimensions
    lhs, rhs = contraction_operands(coordinates)
    kernel = coordinates.kernel
    return _descriptor(kernel, lhs, row, lhs_summed), _descriptor(kernel, rhs, rhs_summed, column)


def _descriptor(
    kernel: Kernel, operand: Expr, first: TileDimension, second: TileDimension
) -> Descriptor | None:
    """Return the descriptor of an operand over the two dimensions of its tile; ``None`` where TMA cannot load it.

    TMA cannot load an operand that is computed, gathered or written by the kernel, has elements of less than 2 bytes or
    no contiguous dimension, or is not aligned.
    """
    if not isinstance(operand, Load) or operand.dtype.itemsize < 2 or any(map(indirects_in, operand.index)):
        return None
    if any(each.name == operand.buffer and each.access != "in" for each in kernel.parameters):
        return None
    (offset,) = operand.index
    strides = [coefficient(offset, dimension.index) for dimension in (first, second)]
    start = substitute(offset, {first.index: 0, second.index: 0})
    if not isinstance(start, int) or not all(isinstance(each, int) for each in strides) or 1 not in strides:
        return None
    transposed = strides[1] != 1
    (stride, _), (slow, fast) = (strides[::-1], (second, first)) if transposed else (strides, (first, second))
    assert isinstance(stride, int)
    size = operand.dtype.itemsize
    aligned = (
        start % (NVIDIA.descriptor_alignment // size) == 0
        and stride % (NVIDIA.descriptor_alignment // size) == 0
        and fast.block * size >= NVIDIA.descriptor_alignment
    )
    if (
        not aligned
        or start < 0
        or stride < fast.size
        or max(slow.block, fast.block) > NVIDIA.max_descriptor_block
    ):
        return None
    return Descriptor(operand.buffer, start, stride, slow, fast, transposed)
