"""Rewriting of a kernel's statements from its axes to the indices of its tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from litz_codegen_triton.emit.indexing.statements import can_flatten, expressions
from litz_codegen_triton.emit.loops.contraction import Contraction
from litz_codegen_triton.emit.loops.dot_kernels import DotKernel
from litz_codegen_triton.emit.loops.fused_attention import FusedAttention
from litz_codegen_triton.emit.loops.tiles import TileDim, Tiling
from litz_ir.loops import Axis
from litz_ir.plan import Accumulate, Kernel, ScanStore, Statement, Store
from litz_ir.scalar import Expr, Index, loads, nested_reductions, transform
from litz_ir.symbols import (
    Range,
    Simplifier,
    Size,
    Symbol,
    add,
    cdiv,
    extent,
    floordiv,
    mod,
    mul,
    product,
    substitute,
    symbol,
)


class TileIndices:
    """A kernel's statements over the indices of its tiles, with terms simplified.

    ``dot`` has the roles of operands and axes where tiles are multiplied, as ``contraction`` or as ``attention``.

    ``indices`` names the index of each dimension: ``x``, ``y`` and ``z`` for outer ones, ``r0`` for the tile of phase
    0, ``s0`` for its serial loop, ``partition`` for the number of a CTA among those of one tile. Attention adds
    ``rows`` (``y``, one-dimensional) and, with row blocks, ``qblock`` (the number of the block), ``qrow`` (the position
    in it, along ``y``) and ``qrows`` (the same, one-dimensional).

    ``summed`` names the summed index in the tiles of the left and of the right operand of a ``tl.dot``. ``loop_bound``
    is the number of points to sum along the first summed axis, for attention with a loop bound; ``division`` is the
    condition of the first part of a loop in two parts, and where that part ends. ``mapping`` has, for
    each phase, each axis as a term of the indices, and ``phases`` the statements over them; ``ranges`` has the range
    of each index and symbol.
    """

    def __init__(self, kernel: Kernel, tiles: Tiling, dot: DotKernel | None) -> None:
        self.kernel = kernel
        self.tiles = tiles
        self.dot = dot
        self.contraction = dot if isinstance(dot, Contraction) else None
        self.attention = dot if isinstance(dot, FusedAttention) else None
        self.indices: dict[str, str] = {}
        self.ranges: dict[str, Range] = {
            info.name: info.range for info in kernel.symbols if info.kind != "float"
        }
        every = (each for phase in kernel.phases for each in phase.statements)
        for nested in nested_reductions(*(expr for each in every for expr in expressions(each))):
            self.ranges |= {name: extent(size) for name, size in nested.axes}
        outer = self._outer()
        self.summed = self._summed()
        if tiles.cluster_size > 1 or tiles.lookback:
            self.index("partition", tiles.ctas_per_tile)
        self.mapping = tuple(outer | self._inner(number) for number in range(len(tiles.inner)))
        simplifier = Simplifier(self.ranges)
        self.phases: tuple[tuple[Statement, ...], ...] = tuple(
            tuple(_over(statement, mapping, simplifier) for statement in self._statements(number))
            for number, mapping in enumerate(self.mapping)
        )
        self.loop_bound, self.division = self._bounds(simplifier)

    def index(self, letter: str, size: Size) -> Symbol:
        """Name the index of a dimension of ``size`` points after its letter, and return it as a symbol.

        Emitted sums have their terms in the order of these names.
        """
        taken = {info.name for info in self.kernel.symbols}
        name = f"{letter}index"
        while name in taken:
            name += "_"
        self.indices[letter] = name
        self.ranges[name] = extent(size)
        return symbol(name)

    def _outer(self) -> dict[str, Size]:
        """Return each outer axis as a term of the indices of the outer dimensions, and name these."""
        # A unit axis needs no index, and a tile may leave it out.
        axes = (*self.kernel.outer, *(self.kernel.phases[0].axes if can_flatten(self.kernel) else ()))
        terms: dict[str, Size] = {axis.name: 0 for axis in axes if axis.size == 1}
        for dim in self.tiles.outer:
            index = self.index(dim.letter, dim.size)
            if self.attention is not None and dim.letter == "y":
                self.index("rows", dim.size)
            terms.update(self._row_blocks(dim) if self._row_block(dim) else unflattened(index, dim.axes))
        return terms

    def _row_block(self, dim: TileDim) -> int:
        """Return the length of the row blocks of attention along its rows, 0 for other dimensions."""
        return self.attention.row_block if self.attention is not None and dim.letter == "y" else 0

    def _row_blocks(self, dim: TileDim) -> dict[str, Size]:
        """Return the rows of attention as terms of their block, the same for a whole tile, and their position in it."""
        *leading, last = dim.axes
        length = self._row_block(dim)
        number = self.index("qblock", cdiv(dim.size, length))
        terms = unflattened(number, (*leading, Axis(last.name, cdiv(last.size, length))))
        self.index("qrows", length)
        return terms | {last.name: add(mul(terms[last.name], length), self.index("qrow", length))}

    def _statements(self, number: int) -> Sequence[Statement]:
        """Return the statements of a phase; those of attention as its matcher rewrote them."""
        found = self.attention
        if found is not None and found.phase == number:
            return found.statements
        return self.kernel.phases[number].statements

    def _bounds(self, simplifier: Simplifier) -> tuple[Expr | None, tuple[Expr, Expr] | None]:
        """Return attention's loop bound, and the condition and length of its first part, over the indices."""
        found = self.attention
        if found is None or found.loop_bound is None:
            return None, None

        def over(expr: Expr) -> Expr:
            return _expression(expr, self.mapping[found.phase], simplifier)

        division = found.division
        parts = None if division is None else (over(division.condition), over(division.count))
        return over(found.loop_bound.count), parts

    def _summed(self) -> tuple[str, str]:
        """Name the summed index in the tiles of the left and the right operand of a ``tl.dot``."""
        found = self.dot
        if found is None:
            return "", ""
        inner = self.tiles.inner[found.phase]
        assert inner is not None
        letters = f"r{found.phase}", f"r{found.phase}_rhs"
        self.index(letters[1], inner.size)
        return self.index(letters[0], inner.size).name, self.indices[letters[1]]

    def _inner(self, number: int) -> dict[str, Size]:
        """Return each axis of a phase as a term of its serial index and the index of its tile."""
        inner = self.tiles.inner[number]
        if inner is None:
            return {}
        serial = self.index(f"s{number}", product(axis.size for axis in inner.serial))
        tiled = self.index(f"r{self.space(number)}", inner.size)
        return unflattened(serial, inner.serial) | unflattened(tiled, inner.axes)

    def space(self, number: int) -> int:
        """Return the first phase of the same persistent tile, whose values are still in registers; else ``number``."""
        inner = self.tiles.inner[number]
        assert inner is not None
        for earlier, other in enumerate(self.tiles.inner[:number]):
            if other is not None and other.persistent and inner.persistent:
                if (other.size, other.block) == (inner.size, inner.block):
                    return earlier
        return number

    def reads(self, number: int) -> frozenset[str]:
        """Return the names of the buffers that a phase reads."""
        found = (load.buffer for statement in self.phases[number] for load in loads(*expressions(statement)))
        return frozenset(found)


def unflattened(index: Size, axes: Sequence[Axis]) -> dict[str, Size]:
    """Return each axis as a term of ``index``, the row-major flattened index of all ``axes``."""
    terms: dict[str, Size] = {}
    for number, axis in enumerate(axes):
        step = product(later.size for later in axes[number + 1 :])
        quotient = index if step in (0, 1) else floordiv(index, step)
        if axis.size in (0, 1):
            terms[axis.name] = 0
        else:
            terms[axis.name] = quotient if number == 0 else mod(quotient, axis.size)
    return terms


def _over(statement: Statement, mapping: Mapping[str, Size], simplifier: Simplifier) -> Statement:
    """Replace the axes of a statement by the terms of ``mapping``, and simplify its index terms."""
    memo: dict[object, object] = {}

    def expression(expr: Expr) -> Expr:
        return _expression(expr, mapping, simplifier, memo)

    def offset(size: Size) -> Size:
        return expression(Index(size)).terms[0]

    match statement:
        case Store():
            return replace(statement, offset=offset(statement.offset), value=expression(statement.value))
        case Accumulate():
            return replace(statement, values=tuple(map(expression, statement.values)))
        case ScanStore():
            targets = tuple((buffer, offset(target)) for buffer, target in statement.targets)
            return replace(statement, values=tuple(map(expression, statement.values)), targets=targets)


def _expression(
    expr: Expr,
    mapping: Mapping[str, Size],
    simplifier: Simplifier,
    memo: dict[object, object] | None = None,
) -> Expr:
    """Replace the axes in an expression by terms of ``mapping``, and simplify its terms."""
    return transform(
        expr, lambda node: node, lambda size: simplifier.simplify(substitute(size, mapping)), memo
    )
