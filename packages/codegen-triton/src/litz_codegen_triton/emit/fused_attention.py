"""Products of products: sums over points of a left factor, computed from products of its own, and of a right factor.

Attention is one: its scores are products of queries and keys, what becomes of a row of scores is multiplied with the
values, and no score is ever in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from types import MappingProxyType

from litz_codegen_triton.emit.contraction import by_index_alone, is_point
from litz_codegen_triton.emit.loop_bounds import LoopBound, loop_bound_of, without_bound
from litz_ir.contraction import as_multiplied, axes_by_operand, narrow_float, operands
from litz_ir.dtypes import DType, bf16, f32
from litz_ir.loops import Axis, NamedCombiner
from litz_ir.plan import Accumulate, Kernel, Store
from litz_ir.scalar import Expr, Masked, NestedReduction, Op, cast, nested_reductions, transform, walk
from litz_ir.symbols import (
    FloorDiv,
    Range,
    Simplifier,
    Size,
    Symbol,
    SymbolTable,
    Term,
    extent,
    product,
    substitute,
    symbol,
)

MAX_HEAD_DIM_TILE = 256
"""The most points of a fold: a tile has all of them."""

MIN_TILE_SIZE = 16
"""The smallest side of a tile that is multiplied."""

PRECISIONS: Mapping[str, str] = MappingProxyType({"mul": "ieee", "mul_tf32": "tf32"})
"""How factors of f32 are multiplied, by the operation that says so."""

SOFTMAX, SUM = NamedCombiner("softmax_sum"), NamedCombiner("sum")
Conditions = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class FusedAttention:
    """The phase of a kernel whose statements are sums of products, for every point of ``batch``, ``rows`` and
    ``columns``, which are the kernel's outer axes.

    ``statements`` have two values each: the left factor (the score of a ``softmax_sum``), which knows ``batch``,
    ``rows`` and the summed axes and holds folds, and the right one, which knows ``batch``, ``columns`` and the summed
    axes; the latter's dtype is that of the product. Each fold is of a *near* factor, which knows no summed axis, and of
    a *far* one, which knows no row. ``head_dim`` is the largest number of points of a fold.

    Without ``columns`` there is no right factor: statements sum what is left of it, or store it at every point of the
    ``summed`` axes.

    ``loop_bound`` says how far along a summed axis, not the last, there is anything to sum; the statements take it
    for true. ``row_block`` is not 0 where the far factors, the right ones and the guard know so many rows as one:
    pieces of the last of ``rows``.
    """

    phase: int
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    summed: tuple[Axis, ...]
    statements: tuple[Accumulate | Store, ...]
    head_dim: int
    loop_bound: LoopBound | None = None
    row_block: int = 0

    @property
    def dtype(self) -> DType:
        """The widest dtype that a right factor has, or, where there is none, a factor of a fold."""
        found = [right.dtype for right in map(v_operand_of, self.statements) if right is not None]
        if not found:
            pairs = (operands(fold.body) for fold in nested_reductions(*map(p_operand_of, self.statements)))
            found = [factor.dtype for pair in pairs if pair for factor in as_multiplied(*pair)]
        return max(found, key=lambda dtype: dtype.bits)

    @property
    def precision(self) -> str:
        """How factors of f32 are multiplied: what is computed of rounded products is rounded too."""
        products = [fold.body for fold in nested_reductions(*map(p_operand_of, self.statements))]
        return max(PRECISIONS[each.name] for each in products if isinstance(each, Op))


def p_operand_of(statement: Accumulate | Store) -> Expr:
    """The left factor of a chain's statement."""
    return statement.value if isinstance(statement, Store) else statement.values[0]


def v_operand_of(statement: Accumulate | Store) -> Expr | None:
    """The right factor of a chain's statement, if it has one."""
    return statement.values[1] if isinstance(statement, Accumulate) and len(statement.values) > 1 else None


def qk_operands(fold: NestedReduction, summed: frozenset[str]) -> tuple[Expr, Expr] | None:
    """The near and the far factor of a fold as they are multiplied; ``None`` where it has none."""
    found = operands(fold.body)
    if (
        found is None
        or not isinstance(fold.body, Op)
        or fold.body.name not in PRECISIONS
        or fold.dtype != f32
    ):
        return None
    knows = [bool(each.free_symbols & summed) for each in found]
    if knows[0] == knows[1]:
        return None
    a, b = as_multiplied(*found)
    return (b, a) if knows[0] else (a, b)


def conditions(values: Iterable[Expr]) -> dict[NestedReduction, Conditions] | None:
    """The folds of values with the conditions that each stands under; ``None`` where one is in places of which nothing
    is known: under several conditions, or in an index."""
    found: dict[NestedReduction, Conditions] = {}
    every = tuple(values)
    stack: list[tuple[Expr, Conditions]] = [(value, ()) for value in every]
    seen: set[tuple[Expr, Conditions]] = set()
    while stack:
        expr, under = stack.pop()
        if (expr, under) in seen:
            continue
        seen.add((expr, under))
        if isinstance(expr, NestedReduction):
            if found.setdefault(expr, under) != under:
                return None
        elif isinstance(expr, Masked):
            stack += [(expr.cond, under), (expr.body, (*under, expr.cond)), (expr.other, under)]
        else:
            stack += [(child, under) for child in expr.children]
    return found if found.keys() == set(nested_reductions(*every)) else None


def fused_attention(kernel: Kernel, known: SymbolTable) -> FusedAttention | None:
    """The chain that a kernel computes and whose results its other phases use point by point, if it is one."""
    inner = [number for number, phase in enumerate(kernel.phases) if phase.axes]
    if len(inner) != 1 or not all(is_point(s) for p in kernel.phases if not p.axes for s in p.statements):
        return None
    (number,) = inner
    statements = [s for s in kernel.phases[number].statements if isinstance(s, Accumulate)]
    if len(statements) != len(kernel.phases[number].statements):
        return None
    if not nested_reductions(*(value for statement in statements for value in statement.values)):
        return None
    if not all(s.combiner in (SOFTMAX, SUM) and by_index_alone(kernel, s) for s in statements):
        return None
    search = _Products(kernel, number, statements, known)
    return next(filter(None, map(search.chain, (*search.cuts(), None))), None)


@dataclass(frozen=True, slots=True)
class RowBlocks:
    """An outer axis cut into pieces of ``length``: it is ``length * block + place``."""

    axis: Axis
    length: int

    @property
    def block(self) -> str:
        return f"{self.axis.name}.block"

    @property
    def offset(self) -> str:
        return f"{self.axis.name}.place"

    def names(self, expr: Expr) -> frozenset[str]:
        """What an expression knows: the block, the place, other axes."""
        ranges = {self.block: Range(0, None), self.offset: extent(self.length)}
        simplifier = Simplifier(ranges)
        whole = {self.axis.name: symbol(self.block) * self.length + symbol(self.offset)}
        return transform(
            expr, lambda node: node, lambda term: simplifier.simplify(substitute(term, whole))
        ).free_symbols


class AttentionMatcher:
    """The search for a chain of statements with such values in phase ``number``, which has all points of ``outer`` and
    sums over ``axes``."""

    def __init__(
        self,
        number: int,
        outer: Sequence[Axis],
        axes: Sequence[Axis],
        values: Sequence[Expr],
        known: SymbolTable,
    ) -> None:
        self.number = number
        self.outer = tuple(outer)
        self.axes = tuple(axes)
        self.values = tuple(values)
        self.known = known
        self.summed = frozenset(axis.name for axis in axes)

    def cuts(self) -> Iterator[RowBlocks]:
        """The outer axis that values speak of in pieces, if there is one."""
        by_name = {axis.name: axis for axis in self.outer}
        lengths: dict[str, int] = {}
        for term in _parts(self.values):
            if isinstance(term, FloorDiv) and isinstance(term.dividend, Symbol):
                name, length = term.dividend.name, term.divisor
                if name in by_name and isinstance(length, int) and length % MIN_TILE_SIZE == 0:
                    lengths[name] = gcd(lengths.get(name, 0), length)
        for name, length in lengths.items():
            yield RowBlocks(by_name[name], length)

    def labels(self, cut: RowBlocks | None) -> dict[Axis, str]:
        """What values know each outer axis as."""
        return {axis: cut.offset if cut and axis == cut.axis else axis.name for axis in self.outer}

    @property
    def even(self) -> bool:
        """True where a tile of the last axis ends where the axis does."""
        last = self.axes[-1].size
        return isinstance(last, int) and last % MIN_TILE_SIZE == 0

    def made(
        self, statements: Sequence[Accumulate | Store], rows: Sequence[Axis], columns: Sequence[Axis],
        guard: LoopBound | None, cut: RowBlocks | None,
    ) -> FusedAttention | None:  # fmt: skip
        """The chain of statements whose left factors know ``rows``, if it is one."""
        label = self.labels(cut)
        unknown = frozenset(label[axis] for axis in rows)
        if cut is not None and not _ends_evenly(cut, rows):
            return None
        if guard is not None and names([guard.count], cut) & (unknown | self.summed):
            return None
        depth = self.depth([p_operand_of(statement) for statement in statements], unknown, cut)
        if not depth or self.known.hint(product(axis.size for axis in self.axes)) < 2:
            return None
        batch = tuple(axis for axis in self.outer if axis not in (*rows, *columns))
        block = 0 if cut is None else cut.length
        return FusedAttention(
            self.number, batch, tuple(rows), tuple(columns), self.axes, tuple(statements), depth, guard, block
        )

    def depth(self, values: Sequence[Expr], rows: frozenset[str], cut: RowBlocks | None) -> int:
        """The largest number of points of a fold; 0 where one of them is no product of a near and a far factor."""
        places = conditions(values)
        if places is None:
            return 0
        depths = []
        for fold, under in places.items():
            found, size = qk_operands(fold, self.summed), product(size for _, size in fold.axes)
            if found is None or not isinstance(size, int) or not 1 <= size <= MAX_HEAD_DIM_TILE:
                return 0
            near, far = found
            # The near factor is read once, and the far one for all rows at a time.
            if names([far, *under], cut) & rows or any(
                nested_reductions(each) for each in (near, far, *under)
            ):
                return 0
            if not all(each.free_symbols & self.summed for each in under):
                return 0
            depths.append(size)
        return max(depths)


class _Products(AttentionMatcher):
    """The search for a chain whose left factors are multiplied with right ones."""

    def __init__(
        self, kernel: Kernel, number: int, statements: Sequence[Accumulate], known: SymbolTable
    ) -> None:
        values = [value for statement in statements for value in statement.values]
        super().__init__(number, kernel.outer, kernel.phases[number].axes, values, known)
        self.statements = statements

    def chain(self, cut: RowBlocks | None) -> FusedAttention | None:
        """The chain, if the phase is one, with an outer axis cut into pieces."""
        scores = [s.values[0] for s in self.statements if s.combiner == SOFTMAX]
        terms = [s.values[0] for s in self.statements if s.combiner == SUM]
        guard = loop_bound_of([axis.name for axis in self.axes[:-1]], scores, terms)
        found = None if guard is None or not self.even else self.guarded(cut, guard)
        return found or self.guarded(cut, None)

    def guarded(self, cut: RowBlocks | None, guard: LoopBound | None) -> FusedAttention | None:
        """The chain whose statements a guard makes shorter."""
        pairs = [_pair(statement, guard) for statement in self.statements]
        if None in pairs:
            return None
        statements = [replace(s, values=pair) for s, pair in zip(self.statements, pairs) if pair]
        sides = zip(*(statement.values for statement in statements), strict=True)
        left, right = (names(side, cut) for side in sides)
        _, rows, columns = axes_by_operand(self.outer, left, right, self.labels(cut).__getitem__)
        return self.made(statements, rows, columns, guard, cut) if columns else None


def _pair(statement: Accumulate, guard: LoopBound | None) -> tuple[Expr, Expr] | None:
    """The left and the right factor of a statement where its guard holds; narrow floats stay narrow."""
    values = [without_bound(guard, value) for value in statement.values]
    if any(value.dtype != f32 for value in values):
        return None
    if statement.combiner == SOFTMAX:
        score, value = values
        return (
            None
            if nested_reductions(value) or not nested_reductions(score)
            else (score, narrow_float(value) or value)
        )
    (value,) = values
    if not isinstance(value, Op) or value.name != "mul":
        return None
    left, right = value.args if nested_reductions(value.args[0]) else value.args[::-1]
    if nested_reductions(right) or not nested_reductions(left):
        return None
    own, other = narrow_float(left), narrow_float(right)
    if other is not None and own is not None and own.dtype == other.dtype:
        return own, other
    # What is rounded on the way has to keep its range.
    return (cast(left, bf16), other) if other is not None and other.dtype == bf16 else (left, right)


def names(values: Iterable[Expr], cut: RowBlocks | None) -> frozenset[str]:
    """What values know."""
    return frozenset().union(*(value.free_symbols if cut is None else cut.names(value) for value in values))


def _ends_evenly(cut: RowBlocks, rows: Sequence[Axis]) -> bool:
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
