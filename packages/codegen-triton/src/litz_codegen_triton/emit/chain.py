"""Products of products: sums over points of a left factor, computed from products of its own, and of a right factor.

Attention is one: its scores are products of queries and keys, what becomes of a row of scores is multiplied with the
values, and no score is ever in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd

from litz_codegen_triton.emit.contraction import by_index_alone, is_point, multiplied, narrowed
from litz_codegen_triton.emit.guards import Guard, guard_of, without
from litz_ir.dtypes import DType, bf16, f32
from litz_ir.loops.nodes import Axis, Kind
from litz_ir.plan.kernel import Accumulate, Kernel
from litz_ir.scalar.build import cast
from litz_ir.scalar.expr import Expr, Fold, Masked, Op, folds, transform, walk
from litz_ir.symbols.ranges import Range, extent
from litz_ir.symbols.simplify import Simplifier
from litz_ir.symbols.table import SymbolTable
from litz_ir.symbols.term import FloorDiv, Size, Symbol, Term, product, substitute, symbol

DEEPEST = 256
"""The most points of a fold: a tile has all of them."""

LEAST_SIDE = 16
"""The smallest side of a tile that is multiplied."""

SOFTMAX, SUM = Kind("softmax_sum"), Kind("sum")
Conditions = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Chain:
    """The phase of a kernel whose statements are sums of products, for every point of ``batch``, ``rows`` and
    ``columns``, which are the kernel's outer axes.

    ``statements`` have two values each: the left factor (the score of a ``softmax_sum``), which knows ``batch``,
    ``rows`` and the summed axes and holds folds, and the right one, which knows ``batch``, ``columns`` and the summed
    axes; the latter's dtype is that of the product. Each fold is of a *near* factor, which knows no summed axis, and of
    a *far* one, which knows no row. ``depth`` is the largest number of points of a fold.

    ``guard`` says how far along a summed axis, not the last, there is anything to sum; the statements take it for true.
    ``block`` is not 0 where the far factors, the right ones and the guard know so many rows as one: pieces of the last
    of ``rows``.
    """

    phase: int
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    statements: tuple[Accumulate, ...]
    depth: int
    guard: Guard | None = None
    block: int = 0

    @property
    def dtype(self) -> DType:
        """The widest dtype that a right factor has."""
        return max((right_of(statement).dtype for statement in self.statements), key=lambda dtype: dtype.bits)


def right_of(statement: Accumulate) -> Expr:
    """The right factor of a chain's statement."""
    return statement.values[1]


def factors(fold: Fold, summed: frozenset[str]) -> tuple[Expr, Expr] | None:
    """The near and the far factor of a fold as they are multiplied; ``None`` where it has none."""
    if not isinstance(fold.body, Op) or fold.body.name != "mul" or fold.dtype != f32:
        return None
    knows = [bool(arg.free_symbols & summed) for arg in fold.body.args]
    if knows[0] == knows[1]:
        return None
    a, b = multiplied(*fold.body.args)
    return (b, a) if knows[0] else (a, b)


def conditions(values: Iterable[Expr]) -> dict[Fold, Conditions] | None:
    """The folds of values with the conditions that each stands under; ``None`` where one is in places of which nothing
    is known: under several conditions, or in an index."""
    found: dict[Fold, Conditions] = {}
    every = tuple(values)
    stack: list[tuple[Expr, Conditions]] = [(value, ()) for value in every]
    seen: set[tuple[Expr, Conditions]] = set()
    while stack:
        expr, under = stack.pop()
        if (expr, under) in seen:
            continue
        seen.add((expr, under))
        if isinstance(expr, Fold):
            if found.setdefault(expr, under) != under:
                return None
        elif isinstance(expr, Masked):
            stack += [(expr.cond, under), (expr.body, (*under, expr.cond)), (expr.other, under)]
        else:
            stack += [(child, under) for child in expr.children]
    return found if found.keys() == set(folds(*every)) else None


def chain(kernel: Kernel, known: SymbolTable) -> Chain | None:
    """The chain that a kernel computes and whose results its other phases use point by point, if it is one."""
    inner = [number for number, phase in enumerate(kernel.phases) if phase.axes]
    if len(inner) != 1 or not all(is_point(s) for p in kernel.phases if not p.axes for s in p.statements):
        return None
    (number,) = inner
    statements = [s for s in kernel.phases[number].statements if isinstance(s, Accumulate)]
    if len(statements) != len(kernel.phases[number].statements):
        return None
    if not folds(*(value for statement in statements for value in statement.values)):
        return None
    if not all(s.combiner in (SOFTMAX, SUM) and by_index_alone(kernel, s) for s in statements):
        return None
    search = _Search(kernel, number, statements, known)
    return next(filter(None, map(search.chain, (*search.cuts(), None))), None)


@dataclass(frozen=True, slots=True)
class _Cut:
    """An outer axis cut into pieces of ``length``: it is ``length * block + place``."""

    axis: Axis
    length: int

    @property
    def block(self) -> str:
        return f"{self.axis.name}.block"

    @property
    def place(self) -> str:
        return f"{self.axis.name}.place"

    def names(self, expr: Expr) -> frozenset[str]:
        """What an expression knows: the block, the place, other axes."""
        ranges = {self.block: Range(0, None), self.place: extent(self.length)}
        simplifier = Simplifier(ranges)
        whole = {self.axis.name: symbol(self.block) * self.length + symbol(self.place)}
        return transform(
            expr, lambda node: node, lambda term: simplifier.simplify(substitute(term, whole))
        ).free_symbols


class _Search:
    """The search for a chain in one phase of a kernel."""

    def __init__(
        self, kernel: Kernel, number: int, statements: Sequence[Accumulate], known: SymbolTable
    ) -> None:
        self.kernel = kernel
        self.number = number
        self.statements = statements
        self.known = known
        self.axes = kernel.phases[number].axes
        self.summed = frozenset(axis.name for axis in self.axes)

    def cuts(self) -> Iterator[_Cut]:
        """The outer axis that values speak of in pieces, if there is one."""
        by_name = {axis.name: axis for axis in self.kernel.outer}
        lengths: dict[str, int] = {}
        for term in _parts(value for statement in self.statements for value in statement.values):
            if isinstance(term, FloorDiv) and isinstance(term.dividend, Symbol):
                name, length = term.dividend.name, term.divisor
                if name in by_name and isinstance(length, int) and length % LEAST_SIDE == 0:
                    lengths[name] = gcd(lengths.get(name, 0), length)
        for name, length in lengths.items():
            yield _Cut(by_name[name], length)

    def chain(self, cut: _Cut | None) -> Chain | None:
        """The chain, if the phase is one, with an outer axis cut into pieces."""
        scores = [s.values[0] for s in self.statements if s.combiner == SOFTMAX]
        terms = [s.values[0] for s in self.statements if s.combiner == SUM]
        guard = guard_of([axis.name for axis in self.axes[:-1]], scores, terms)
        last = self.axes[-1].size
        even = isinstance(last, int) and last % LEAST_SIDE == 0
        found = None if guard is None or not even else self.guarded(cut, guard)
        return found or self.guarded(cut, None)

    def guarded(self, cut: _Cut | None, guard: Guard | None) -> Chain | None:
        """The chain whose statements a guard makes shorter."""
        pairs = [_pair(statement, guard) for statement in self.statements]
        if None in pairs:
            return None
        statements = tuple(replace(s, values=pair) for s, pair in zip(self.statements, pairs) if pair)
        sides = zip(*(statement.values for statement in statements), strict=True)
        left, right = (_names(side, cut) for side in sides)
        label = {axis: cut.place if cut and axis == cut.axis else axis.name for axis in self.kernel.outer}
        rows = tuple(axis for axis in self.kernel.outer if label[axis] in left - right)
        columns = tuple(axis for axis in self.kernel.outer if label[axis] in right - left)
        batch = tuple(axis for axis in self.kernel.outer if axis not in (*rows, *columns))
        unknown = frozenset(label[axis] for axis in rows)
        if cut is not None and not _ends_evenly(cut, rows):
            return None
        if guard is not None and _names([guard.count], cut) & (unknown | self.summed):
            return None
        depth = self.depth([statement.values[0] for statement in statements], unknown, cut)
        if not depth or not columns or self.known.hint(product(axis.size for axis in self.axes)) < 2:
            return None
        block = 0 if cut is None else cut.length
        return Chain(self.number, batch, rows, columns, statements, depth, guard, block)

    def depth(self, values: Sequence[Expr], rows: frozenset[str], cut: _Cut | None) -> int:
        """The largest number of points of a fold; 0 where one of them is no product of a near and a far factor."""
        places = conditions(values)
        if places is None:
            return 0
        depths = []
        for fold, under in places.items():
            found, size = factors(fold, self.summed), product(size for _, size in fold.axes)
            if found is None or not isinstance(size, int) or not 1 <= size <= DEEPEST:
                return 0
            near, far = found
            # The near factor is read once, and the far one for all rows at a time.
            if _names([far, *under], cut) & rows or any(folds(each) for each in (near, far, *under)):
                return 0
            if not all(each.free_symbols & self.summed for each in under):
                return 0
            depths.append(size)
        return max(depths)


def _pair(statement: Accumulate, guard: Guard | None) -> tuple[Expr, Expr] | None:
    """The left and the right factor of a statement where its guard holds; narrow floats stay narrow."""
    values = [without(guard, value) for value in statement.values]
    if any(value.dtype != f32 for value in values):
        return None
    if statement.combiner == SOFTMAX:
        score, value = values
        return None if folds(value) or not folds(score) else (score, narrowed(value) or value)
    (value,) = values
    if not isinstance(value, Op) or value.name != "mul":
        return None
    left, right = value.args if folds(value.args[0]) else value.args[::-1]
    if folds(right) or not folds(left):
        return None
    own, other = narrowed(left), narrowed(right)
    if other is not None and own is not None and own.dtype == other.dtype:
        return own, other
    # What is rounded on the way has to keep its range.
    return (cast(left, bf16), other) if other is not None and other.dtype == bf16 else (left, right)


def _names(values: Iterable[Expr], cut: _Cut | None) -> frozenset[str]:
    """What values know."""
    return frozenset().union(*(value.free_symbols if cut is None else cut.names(value) for value in values))


def _ends_evenly(cut: _Cut, rows: Sequence[Axis]) -> bool:
    """True where pieces of the last row axis are pieces of all rows."""
    size = cut.axis.size
    whole = len(rows) == 1 or (isinstance(size, int) and size % cut.length == 0)
    return bool(rows) and rows[-1] == cut.axis and whole


def _parts(values: Iterable[Expr]) -> Iterator[Term]:
    """All terms in values, and all that these are made of."""
    stack: list[Size] = [term for node in walk(*values) for term in node.terms]
    seen: set[Term] = set()
    while stack:
        term = stack.pop()
        if isinstance(term, Term) and term not in seen:
            seen.add(term)
            stack.extend(term.children())
            yield term
