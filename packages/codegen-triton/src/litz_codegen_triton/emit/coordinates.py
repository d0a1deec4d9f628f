"""From a kernel's axes to the indices of its tiles: every term is rewritten over them and simplified."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from litz_codegen_triton.emit.blocks import flat, targets_of, values_of
from litz_codegen_triton.emit.index import fits_narrow
from litz_codegen_triton.emit.tiles import Tiling
from litz_ir.loops.nodes import Axis
from litz_ir.plan.kernel import Accumulate, Kernel, ScanStore, Statement, Store
from litz_ir.scalar.expr import Expr, Index, folds, indirects_in, loads, transform, walk
from litz_ir.symbols.ranges import Range, extent
from litz_ir.symbols.simplify import Simplifier
from litz_ir.symbols.term import Size, Symbol, add, floordiv, mod, product, substitute, symbol


class Coordinates:
    """A kernel's statements over the indices of its tiles.

    ``indices`` names the index of each dimension: ``x``, ``y`` and ``z`` for outer ones; ``r0`` for the tile of phase
    0, ``s0`` for the loop that a scan restarts in. ``summed`` names those of a contraction's two factors. ``mapping``
    gives, per phase, each axis as a term of them, ``phases`` the statements so rewritten, and ``ranges`` what is known
    of all symbols.
    """

    def __init__(self, kernel: Kernel, tiles: Tiling) -> None:
        self.kernel = kernel
        self.tiles = tiles
        self.indices: dict[str, str] = {}
        self.ranges: dict[str, Range] = {
            info.name: info.range for info in kernel.symbols if info.kind != "float"
        }
        every = (each for phase in kernel.phases for each in phase.statements)
        for fold in folds(*(expr for each in every for expr in expressions(each))):
            self.ranges |= {name: extent(size) for name, size in fold.axes}
        outer = self._outer()
        self.summed = self._summed()
        self.mapping = tuple(outer | self._inner(number) for number in range(len(tiles.inner)))
        simplifier = Simplifier(self.ranges)
        self.phases: tuple[tuple[Statement, ...], ...] = tuple(
            tuple(_over(statement, mapping, simplifier) for statement in phase.statements)
            for phase, mapping in zip(kernel.phases, self.mapping)
        )

    def _index(self, letter: str, size: Size) -> Symbol:
        taken = {info.name for info in self.kernel.symbols}
        name = f"{letter}index"
        while name in taken:
            name += "_"
        self.indices[letter] = name
        self.ranges[name] = extent(size)
        return symbol(name)

    def _outer(self) -> dict[str, Size]:
        # An axis of one point needs no index, and a tile may leave it out.
        axes = (*self.kernel.outer, *(self.kernel.phases[0].axes if flat(self.kernel) else ()))
        terms: dict[str, Size] = {axis.name: 0 for axis in axes if axis.size == 1}
        for dim in self.tiles.outer:
            terms.update(_unflattened(self._index(dim.letter, dim.size), dim.axes))
        return terms

    def _summed(self) -> tuple[str, str]:
        """Names for the summed points of a contraction in the tiles of its left factor and of its right one."""
        found = self.tiles.contraction
        if found is None:
            return "", ""
        inner = self.tiles.inner[found.phase]
        assert inner is not None
        letters = f"r{found.phase}", f"r{found.phase}_right"
        self._index(letters[1], inner.size)
        return self._index(letters[0], inner.size).name, self.indices[letters[1]]

    def _inner(self, number: int) -> dict[str, Size]:
        inner = self.tiles.inner[number]
        if inner is None:
            return {}
        serial = self._index(f"s{number}", product(axis.size for axis in inner.serial))
        tiled = self._index(f"r{self.space(number)}", inner.size)
        return _unflattened(serial, inner.serial) | _unflattened(tiled, inner.axes)

    def space(self, number: int) -> int:
        """The first phase whose tile is that of this one: values computed there are still in registers."""
        inner = self.tiles.inner[number]
        assert inner is not None
        for earlier, other in enumerate(self.tiles.inner[:number]):
            if other is not None and other.persistent and inner.persistent:
                if (other.size, other.block) == (inner.size, inner.block):
                    return earlier
        return number

    def reads(self, number: int) -> frozenset[str]:
        """The buffers that a phase reads."""
        found = (load.buffer for statement in self.phases[number] for load in loads(*expressions(statement)))
        return frozenset(found)

    def narrow(self) -> bool:
        """True when 32-bit indices do."""
        terms = {term: None for statements in self.phases for each in statements for term in _terms(each)}
        # A tile may stick out past the last point.
        for dim in self.tiles.outer:
            terms[add(dim.size, dim.block)] = None
        for inner in self.tiles.inner:
            if inner is not None:
                terms[add(inner.size, inner.block)] = None
                terms[product(axis.size for axis in inner.serial)] = None
        return fits_narrow(terms, self.ranges)


def _unflattened(index: Size, axes: Sequence[Axis]) -> dict[str, Size]:
    """Each axis as a term of the flattened index."""
    terms: dict[str, Size] = {}
    for place, axis in enumerate(axes):
        step = product(later.size for later in axes[place + 1 :])
        quotient = index if step in (0, 1) else floordiv(index, step)
        if axis.size in (0, 1):
            terms[axis.name] = 0
        else:
            terms[axis.name] = quotient if place == 0 else mod(quotient, axis.size)
    return terms


def _over(statement: Statement, mapping: Mapping[str, Size], simplifier: Simplifier) -> Statement:
    """A statement with its axes replaced, its terms simplified."""
    memo: dict[object, object] = {}

    def term(size: Size) -> Size:
        return simplifier.simplify(substitute(size, mapping))

    def expression(expr: Expr) -> Expr:
        return transform(expr, lambda node: node, term, memo)

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


def expressions(statement: Statement) -> tuple[Expr, ...]:
    """All that a statement evaluates: its values and what its offsets' indirect indices hold."""
    held = (atom.value for _, target in targets_of(statement) for atom in indirects_in(target))
    return (*values_of(statement), *held)


def _terms(statement: Statement) -> Iterable[Size]:
    for _, target in targets_of(statement):
        yield target
    for node in walk(*expressions(statement)):
        yield from node.terms
