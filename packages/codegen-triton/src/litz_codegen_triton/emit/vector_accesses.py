"""Which accesses of a kernel have to be of 16 bytes a thread, by what is known of them: a compiler that makes narrower
ones of them leaves bandwidth unused.

An access has to where all of this holds:

- each thread has 16 bytes of the tile, or more: smaller tiles are those of small tensors;
- along one dimension of the tile, elements that fill 16 bytes and begin at a multiple of them are neighbours in memory,
  the first at a multiple of 16 bytes. Buffers begin at one;
- those elements exist together or not at all: the extent is a multiple of their number, or the tiles cover it exactly,
  and every condition that it stands under is the same for all of them. An atomic operation is never wide.

What a product of tiles reads goes to shared memory by instructions of its own, and is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import gcd, prod
from typing import Literal

from litz_codegen_triton.emit.coordinates import TileIndices
from litz_ir.plan import Kernel
from litz_ir.scalar import Const, Expr, Index, Indirect, Load, Op, Scalar
from litz_ir.symbols import FloorDiv, Mod, Product, Size, Sum, Symbol, Term, add, mul

VECTOR_BYTES = 16
_WARP = 32

Direction = Literal["load", "store"]


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """A load or store as it was written: its offset over the indices of the tile, the tile dimensions that it varies
    along, and the conditions that decide about its elements besides the tile's end."""

    direction: Direction
    buffer: str
    offset: Size
    dims: frozenset[str]
    conditions: tuple[Expr, ...] = ()


VectorAccess = tuple[Direction, str, int]
"""A load or store, its buffer, and how many times a thread accesses 16 bytes for it. Of a pack, the name of the part
and a dot come before the buffer's."""


def vector_accesses(accesses: Iterable[MemoryAccess], coordinates: TileIndices) -> Iterator[VectorAccess]:
    """Those of a kernel's accesses that have to be of 16 bytes, in the order in which they were written."""
    kernel, tiles = coordinates.kernel, coordinates.tiles
    if tiles.uses_dot:
        return
    spans = tuple(_spans(coordinates))
    for access in accesses:
        itemsize = kernel.parameter(access.buffer).dtype.itemsize
        used = [span for span in spans if span.letter in access.dims and span.is_of(access.offset)]
        own = prod(span.block for span in used) * itemsize // (_WARP * tiles.warps)
        if own >= VECTOR_BYTES and any(
            _is_wide(access, span, VECTOR_BYTES // itemsize, kernel) for span in used
        ):
            yield access.direction, access.buffer, own // VECTOR_BYTES


@dataclass(frozen=True, slots=True)
class _Span:
    """A dimension of the tile: its letter, the index that runs along it, its extent, and its block, of which so many
    programs have one each."""

    letter: str
    index: str
    size: Size
    block: int
    pieces: int = 1

    def is_of(self, offset: Size) -> bool:
        """True where an offset varies along this index."""
        return isinstance(offset, Term) and self.index in offset.free_symbols


def _spans(coordinates: TileIndices) -> Iterator[_Span]:
    for dim in coordinates.tiles.outer:
        if dim.block > 1:
            yield _Span(dim.letter, coordinates.indices[dim.letter], dim.size, dim.block)
    for number, inner in enumerate(coordinates.tiles.inner):
        if inner is not None and coordinates.space(number) == number:
            yield _Span("r", coordinates.indices[f"r{number}"], inner.size, inner.block, inner.cluster_size)


def _is_wide(access: MemoryAccess, span: _Span, count: int, kernel: Kernel) -> bool:
    """True where ``count`` elements along a dimension are one run of memory that is accessed as a whole."""
    known = _Runs(span.index, count, {info.name: info.divisor for info in kernel.symbols})
    exact = isinstance(span.size, int) and span.size % (span.block * span.pieces) == 0
    if span.block % count or not (exact or known.starts(known.term(span.size))):
        return False
    run = known.term(access.offset)
    return run.step == 1 and known.starts(run) and all(map(known.same, access.conditions))


@dataclass(frozen=True, slots=True)
class _Run:
    """How much a term grows from one point to the next (``None``: not evenly), and a number that divides its value at
    the first point (0: that value is 0)."""

    step: int | None
    divisor: int = 1


_UNEVEN, _SAME = _Run(None), _Run(0)


@dataclass(frozen=True, slots=True)
class _Runs:
    """What terms are over ``count`` points along ``index`` that start at a multiple of it; ``divisors`` are
    those of the kernel's symbols."""

    index: str
    count: int
    divisors: Mapping[str, int]

    def starts(self, run: _Run) -> bool:
        """True where the first value is a multiple of the number of points."""
        return run.divisor % self.count == 0

    def term(self, term: Size) -> _Run:
        """What is known of a term."""
        match term:
            case int():
                return _Run(0, abs(term))
            case Symbol():
                return (
                    _Run(1, self.count)
                    if term.name == self.index
                    else _Run(0, self.divisors.get(term.name, 1))
                )
            case Sum():
                return self._sum(term)
            case Product():
                factors = [self.term(factor) for factor in term.factors]
                same = all(run.step == 0 for run in factors)
                return _Run(0, prod(run.divisor for run in factors)) if same else _UNEVEN
            case FloorDiv() | Mod():
                return self._quotient(term)
            case Indirect():
                return _SAME if self.same(term.value) and self.term(term.size).step == 0 else _UNEVEN
        return _UNEVEN if self.index in term.free_symbols else _SAME

    def _sum(self, term: Sum) -> _Run:
        runs = [(self.term(part), factor) for part, factor in term.terms]
        step = 0
        for run, factor in runs:
            if run.step is None:
                return _UNEVEN
            step += run.step * factor
        return _Run(step, gcd(term.constant, *(run.divisor * factor for run, factor in runs)))

    def _quotient(self, term: FloorDiv | Mod) -> _Run:
        above, below = self.term(term.dividend), self.term(term.divisor)
        remains = isinstance(term, Mod)
        if above.step == below.step == 0:
            return _Run(0, gcd(above.divisor, below.divisor)) if remains else _SAME
        if above.step == 1 and below.step == 0 and self.starts(above) and self.starts(below):
            # No multiple of the divisor lies inside the run.
            return _Run(1, gcd(above.divisor, below.divisor)) if remains else _SAME
        return _UNEVEN

    def same(self, expr: Expr) -> bool:
        """True for an expression that has one value at all of the points, and Triton sees that it has: what is computed
        of floats it takes for uneven."""
        match expr:
            case Const():
                return True
            case Scalar():
                return expr.name in self.divisors
            case Index() | Load():
                return all(self.term(term).step == 0 for term in expr.terms)
            case Op(name="lt" | "ge", args=(Index() | Const() as a, Index() | Const() as b)):
                run = self.term(add(_integer(a), mul(_integer(b), -1)))
                # A run from a multiple of its length on lies on one side of zero.
                return run.step == 0 or (run.step == 1 and self.starts(run))
            case Op():
                return all(self.same(arg) and not arg.dtype.is_float for arg in expr.args)
        return False


def _integer(expr: Index | Const) -> Size:
    """The number that an operand of a comparison is."""
    return expr.term if isinstance(expr, Index) else int(expr.value)
