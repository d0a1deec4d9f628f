"""Accesses of a kernel that must be vectorised: 16 bytes a thread, or bandwidth is unused.

Tests compare this list with the assembly. An access must be vectorised where all of these hold:

- each thread has at least 16 bytes of the tile; smaller tiles belong to small tensors;
- along one dimension of the tile, each group of elements that fills 16 bytes is contiguous in memory and aligned to 16
  bytes, given buffers that are aligned to 16 bytes;
- the elements of a group have the same mask: the extent is a multiple of the group, or the tiles cover it exactly, and
  every condition of a masked expression has one value for the group.

Atomic operations are not vectorised. The operands of ``tl.dot`` are copied to shared memory by other instructions and
are not listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import gcd, prod
from typing import Literal

from litz_codegen_triton.capabilities import NVIDIA
from litz_codegen_triton.emit.indexing.coordinates import TileIndices
from litz_ir.plan import Kernel
from litz_ir.scalar import Const, Expr, Index, Indirect, Load, Op, Scalar
from litz_ir.symbols import FloorDiv, Mod, Product, Size, Sum, Symbol, Term, add, mul

Direction = Literal["load", "store"]


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """A load or store that was written."""

    direction: Direction
    """Load or store."""

    buffer: str
    """Buffer that is accessed."""

    offset: Size
    """Offset in elements, over the indices of the tile."""

    dims: frozenset[str]
    """Letters of the tile dimensions that the access has."""

    conditions: tuple[Expr, ...] = ()
    """Conditions of the masked expressions that enclose the access."""


VectorAccess = tuple[Direction, str, int]
"""A load or store, its buffer, and the number of 16-byte accesses of a thread for it. In a foreach kernel, the buffer's
name is prefixed with the subkernel's name and a dot."""


def vector_accesses(accesses: Iterable[MemoryAccess], coordinates: TileIndices) -> Iterator[VectorAccess]:
    """Yield those of a kernel's accesses that must be vectorised, in the order in which they were written."""
    kernel, tiles = coordinates.kernel, coordinates.tiles
    if tiles.uses_dot:
        return
    dims = tuple(_dimensions(coordinates))
    for access in accesses:
        itemsize = kernel.parameter(access.buffer).dtype.itemsize
        used = [dim for dim in dims if dim.letter in access.dims and dim.is_index_of(access.offset)]
        nbytes = prod(dim.block for dim in used) * itemsize // (NVIDIA.warp_size * tiles.warps)
        if nbytes >= NVIDIA.vector_bytes and any(
            _is_vectorisable(access, dim, NVIDIA.vector_bytes // itemsize, kernel) for dim in used
        ):
            yield access.direction, access.buffer, nbytes // NVIDIA.vector_bytes


def aligned_elements(offset: Size, index: str, itemsize: int, kernel: Kernel) -> int:
    """Return the elements along an index that one access of a thread can move, by the alignment of their addresses."""
    count, divisors = NVIDIA.vector_bytes // itemsize, {info.name: info.divisor for info in kernel.symbols}
    while count > 1:
        group = _Group(index, count, divisors)
        values = group.term(offset)
        if values.step == 1 and group.is_aligned(values):
            break
        count //= 2
    return count


@dataclass(frozen=True, slots=True)
class _Dimension:
    """A dimension of the tile, outer or inner."""

    letter: str
    """Letter of the dimension."""

    index: str
    """Index that runs along it."""

    size: Size
    """Points along it."""

    block: int
    """Points of the tile along it."""

    cluster_size: int = 1
    """Thread blocks that have one tile each of its points."""

    def is_index_of(self, offset: Size) -> bool:
        """True where an offset varies along the dimension."""
        return isinstance(offset, Term) and self.index in offset.free_symbols


def _dimensions(coordinates: TileIndices) -> Iterator[_Dimension]:
    for dim in coordinates.tiles.outer:
        if dim.block > 1:
            yield _Dimension(dim.letter, coordinates.indices[dim.letter], dim.size, dim.block)
    for number, inner in enumerate(coordinates.tiles.inner):
        if inner is not None and coordinates.space(number) == number:
            yield _Dimension(
                "r", coordinates.indices[f"r{number}"], inner.size, inner.block, inner.cluster_size
            )


def _is_vectorisable(access: MemoryAccess, dim: _Dimension, count: int, kernel: Kernel) -> bool:
    """True where groups of ``count`` elements along a dimension are contiguous, aligned and have one mask each."""
    known = _Group(dim.index, count, {info.name: info.divisor for info in kernel.symbols})
    exact = isinstance(dim.size, int) and dim.size % (dim.block * dim.cluster_size) == 0
    if dim.block % count or not (exact or known.is_aligned(known.term(dim.size))):
        return False
    offset = known.term(access.offset)
    return offset.step == 1 and known.is_aligned(offset) and all(map(known.is_uniform, access.conditions))


@dataclass(frozen=True, slots=True)
class _Progression:
    """Values of a term at the points of a group."""

    step: int | None
    """Difference of successive values; ``None`` where it is not constant."""

    divisor: int = 1
    """Number that divides the first value; 0 where that is 0."""


_IRREGULAR, _CONSTANT = _Progression(None), _Progression(0)


@dataclass(frozen=True, slots=True)
class _Group:
    """Analysis of terms over a group of points along one index."""

    index: str
    """Index that runs along the group."""

    count: int
    """Points of the group, whose first index is a multiple of it."""

    divisors: Mapping[str, int]
    """Divisors of the kernel's symbols."""

    def is_aligned(self, values: _Progression) -> bool:
        """True where the first value is a multiple of the number of points."""
        return values.divisor % self.count == 0

    def term(self, term: Size) -> _Progression:
        """Return the values of a term."""
        match term:
            case int():
                return _Progression(0, abs(term))
            case Symbol():
                return (
                    _Progression(1, self.count)
                    if term.name == self.index
                    else _Progression(0, self.divisors.get(term.name, 1))
                )
            case Sum():
                return self._sum(term)
            case Product():
                operands = [self.term(operand) for operand in term.factors]
                constant = all(each.step == 0 for each in operands)
                return _Progression(0, prod(each.divisor for each in operands)) if constant else _IRREGULAR
            case FloorDiv() | Mod():
                return self._quotient(term)
            case Indirect():
                uniform = self.is_uniform(term.value) and self.term(term.size).step == 0
                return _CONSTANT if uniform else _IRREGULAR
        return _IRREGULAR if self.index in term.free_symbols else _CONSTANT

    def _sum(self, term: Sum) -> _Progression:
        summands = [(self.term(operand), scale) for operand, scale in term.terms]
        step = 0
        for values, scale in summands:
            if values.step is None:
                return _IRREGULAR
            step += values.step * scale
        return _Progression(step, gcd(term.constant, *(values.divisor * scale for values, scale in summands)))

    def _quotient(self, term: FloorDiv | Mod) -> _Progression:
        dividend, divisor = self.term(term.dividend), self.term(term.divisor)
        is_remainder = isinstance(term, Mod)
        common = gcd(dividend.divisor, divisor.divisor)
        if dividend.step == divisor.step == 0:
            return _Progression(0, common) if is_remainder else _CONSTANT
        if (
            dividend.step == 1
            and divisor.step == 0
            and self.is_aligned(dividend)
            and self.is_aligned(divisor)
        ):
            # No multiple of the divisor lies inside the group.
            return _Progression(1, common) if is_remainder else _CONSTANT
        return _IRREGULAR

    def is_uniform(self, expr: Expr) -> bool:
        """True for an expression that has one value at all points of a group, as Triton's analysis can prove; it proves
        nothing of results that are computed from floats."""
        match expr:
            case Const():
                return True
            case Scalar():
                return expr.name in self.divisors
            case Index() | Load():
                return all(self.term(term).step == 0 for term in expr.terms)
            case Op(name="lt" | "ge", args=(Index() | Const() as a, Index() | Const() as b)):
                difference = self.term(add(_integer(a), mul(_integer(b), -1)))
                # Values of a group that starts at a multiple of its length have one sign.
                return difference.step == 0 or (difference.step == 1 and self.is_aligned(difference))
            case Op():
                return all(self.is_uniform(arg) and not arg.dtype.is_float for arg in expr.args)
        return False


def _integer(expr: Index | Const) -> Size:
    """Return an operand of an integer comparison as an index term."""
    return expr.term if isinstance(expr, Index) else int(expr.value)
