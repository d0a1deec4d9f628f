"""Recognition of fused attention: a sum of P times V whose operand P is computed from matmuls of its own, such as QK^T.

In attention the scores QK^T are a nested reduction inside P, a row of P is multiplied with V, and no score reaches
memory. The gradients of attention have the same form. Q, K, P and V name the operands by their role in any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from types import MappingProxyType

from litz_codegen_triton.emit.loops.contraction import by_index_alone, is_point
from litz_codegen_triton.emit.loops.loop_bounds import (
    LoopBound,
    division_of,
    loop_bound_of,
    without_bound,
)
from litz_ir.contraction import as_multiplied, axes_by_operand, narrow_float, operands
from litz_ir.dtypes import DType, bf16, f32
from litz_ir.loops import Axis, NamedCombiner
from litz_ir.plan import Accumulate, Kernel, Store
from litz_ir.scalar import (
    Expr,
    Index,
    NestedReduction,
    Op,
    cast,
    conditions_of_nested_reductions,
    nested_reductions,
    transform,
    walk,
)
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

_MAX_HEAD_DIM_TILE = 256
"""Largest number of points of a nested reduction: one tile holds them all, since QK^T is one ``tl.dot`` per block."""

MIN_TILE_SIZE = 16
"""Smallest M, N and K of a ``tl.dot``, in points."""

_PRECISIONS: Mapping[str, str] = MappingProxyType({"mul": "ieee", "mul_tf32": "tf32"})
"""The ``input_precision`` of ``tl.dot`` for f32 operands, by the scalar operation that multiplies them."""

SOFTMAX, SUM = NamedCombiner("softmax_sum"), NamedCombiner("sum")


@dataclass(frozen=True, slots=True)
class FusedAttention:
    """The phase of a kernel that sums P times V, with P computed from nested reductions, such as QK^T.

    Each nested reduction multiplies an operand Q, which depends on no summed axis, with an operand K, which depends on
    no axis of ``rows``. Without ``columns`` there is no V: the statements sum P along a row, or store it at every point
    of the ``summed`` axes.
    """

    phase: int
    """The number of the phase in its kernel, from 0."""
    batch: tuple[Axis, ...]
    """Outer axes that P and V depend on, and those that neither does."""
    rows: tuple[Axis, ...]
    """Outer axes that P alone depends on: the queries."""
    columns: tuple[Axis, ...]
    """Outer axes that V alone depends on: the head dimension of V. Empty without V."""
    summed: tuple[Axis, ...]
    """Axes that the phase sums over: the keys."""
    statements: tuple[Accumulate | Store, ...]
    """Statements whose values are P (for ``softmax_sum``: the score) and V, simplified for points in ``loop_bound``.

    ``tl.dot`` multiplies them in V's dtype."""
    head_dim: int
    """The largest number of points of a nested reduction."""
    loop_bound: LoopBound | None = None
    """The end of one of the summed axes, not the last, such as the number of listed key blocks."""
    division: LoopBound | None = None
    """The point of the axis of ``loop_bound`` that divides the loop in two, in each of which P is simpler."""
    row_block: int = 0
    """Length of blocks of the last row axis in which K, V and ``loop_bound`` are the same; 0 where there are none."""

    @property
    def dtype(self) -> DType:
        """The widest dtype of V, or of Q and K where there is no V."""
        found = [v.dtype for v in map(v_operand_of, self.statements) if v is not None]
        if not found:
            pairs = (operands(each.body) for each in nested_reductions(*map(p_operand_of, self.statements)))
            found = [operand.dtype for pair in pairs if pair for operand in as_multiplied(*pair)]
        return max(found, key=lambda dtype: dtype.bits)

    @property
    def precision(self) -> str:
        """The ``input_precision`` of f32 operands: TF32 for PV too where any QK^T rounds its operands to TF32."""
        bodies = [each.body for each in nested_reductions(*map(p_operand_of, self.statements))]
        return max(_PRECISIONS[body.name] for body in bodies if isinstance(body, Op))


def p_operand_of(statement: Accumulate | Store) -> Expr:
    """Return P, or the score of a softmax-weighted sum."""
    return statement.value if isinstance(statement, Store) else statement.values[0]


def simplified(statement: Accumulate | Store, simplify: Callable[[Expr], Expr]) -> Accumulate | Store:
    """Return a statement with its values and its offset simplified."""
    if isinstance(statement, Accumulate):
        return replace(statement, values=tuple(map(simplify, statement.values)))
    return replace(
        statement, value=simplify(statement.value), offset=simplify(Index(statement.offset)).terms[0]
    )


def v_operand_of(statement: Accumulate | Store) -> Expr | None:
    """Return V, or ``None`` for a statement that sums or stores P alone."""
    return statement.values[1] if isinstance(statement, Accumulate) and len(statement.values) > 1 else None


def qk_operands(nested: NestedReduction, summed: frozenset[str]) -> tuple[Expr, Expr] | None:
    """Return Q and K of a nested reduction in the dtype of their multiplication; ``None`` if it is no such matmul.

    K is the operand that depends on the ``summed`` axes.
    """
    found, body = operands(nested.body), nested.body
    if found is None or not isinstance(body, Op) or body.name not in _PRECISIONS or nested.dtype != f32:
        return None
    varies = [bool(each.free_symbols & summed) for each in found]
    if varies[0] == varies[1]:
        return None
    a, b = as_multiplied(*found)
    return (b, a) if varies[0] else (a, b)


def fused_attention(kernel: Kernel, known: SymbolTable) -> FusedAttention | None:
    """Match a kernel with one reduction phase that is fused attention and whose other phases are pointwise.

    ``known`` has the hints of the kernel's symbols. Returns ``None`` for any other kernel.
    """
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
    matcher = _PVMatcher(kernel, number, statements, known)
    return next(filter(None, map(matcher.match, (*matcher.row_blocks(), None))), None)


@dataclass(frozen=True, slots=True)
class RowBlocks:
    """An outer axis divided into blocks: its index is ``length * block + offset``."""

    axis: Axis
    """The divided axis."""
    length: int
    """Points of a block."""

    @property
    def block(self) -> str:
        """The name of the symbol for the number of a block."""
        return f"{self.axis.name}.block"

    @property
    def offset(self) -> str:
        """The name of the symbol for the position in a block."""
        return f"{self.axis.name}.offset"

    def free_symbols(self, expr: Expr) -> frozenset[str]:
        """Return the symbols that an expression depends on, those of the block and its offset instead of the axis."""
        ranges = {self.block: Range(0, None), self.offset: extent(self.length)}
        simplifier = Simplifier(ranges)
        whole = {self.axis.name: symbol(self.block) * self.length + symbol(self.offset)}
        return transform(
            expr, lambda node: node, lambda term: simplifier.simplify(substitute(term, whole))
        ).free_symbols


class AttentionMatcher:
    """The tests of fused attention that hold with and without V, for one phase and its values.

    ``number`` is the phase's; it has all points of ``outer`` and sums over ``axes``. ``values`` are those of its
    statements, in which blocks of rows are looked for.
    """

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

    def row_blocks(self) -> Iterator[RowBlocks]:
        """Yield each outer axis that the values divide by a multiple of ``MIN_TILE_SIZE``, in blocks of that length."""
        by_name = {axis.name: axis for axis in self.outer}
        lengths: dict[str, int] = {}
        for term in _subterms(self.values):
            if isinstance(term, FloorDiv) and isinstance(term.dividend, Symbol):
                name, length = term.dividend.name, term.divisor
                if name in by_name and isinstance(length, int) and length % MIN_TILE_SIZE == 0:
                    lengths[name] = gcd(lengths.get(name, 0), length)
        for name, length in lengths.items():
            yield RowBlocks(by_name[name], length)

    def labels(self, blocks: RowBlocks | None) -> dict[Axis, str]:
        """Map each outer axis to the symbol that stands for it: the offset in a block, for a divided axis."""
        return {axis: blocks.offset if blocks and axis == blocks.axis else axis.name for axis in self.outer}

    @property
    def has_whole_tiles(self) -> bool:
        """True where the size of the last summed axis is a multiple of ``MIN_TILE_SIZE``."""
        last = self.axes[-1].size
        return isinstance(last, int) and last % MIN_TILE_SIZE == 0

    def build(
        self, statements: Sequence[Accumulate | Store], rows: Sequence[Axis], columns: Sequence[Axis],
        bound: LoopBound | None, blocks: RowBlocks | None,
    ) -> FusedAttention | None:  # fmt: skip
        """Return the fused attention of statements whose P depends on ``rows``; ``None`` if they are none."""
        label = self.labels(blocks)
        row_symbols = frozenset(label[axis] for axis in rows)
        if blocks is not None and not _divides_rows(blocks, rows):
            return None
        varying = row_symbols | self.summed
        if bound is not None and free_symbols_of([bound.count], blocks) & varying:
            return None
        division = division_of(bound, [p_operand_of(each) for each in statements])
        if division is not None and free_symbols_of([division.count], blocks) & varying:
            division = None
        head_dim = self.head_dim([p_operand_of(statement) for statement in statements], row_symbols, blocks)
        if not head_dim or self.known.hint(product(axis.size for axis in self.axes)) < 2:
            return None
        return FusedAttention(
            self.number,
            tuple(axis for axis in self.outer if axis not in (*rows, *columns)),
            tuple(rows),
            tuple(columns),
            self.axes,
            tuple(statements),
            head_dim,
            bound,
            division,
            0 if blocks is None else blocks.length,
        )

    def head_dim(self, values: Sequence[Expr], rows: frozenset[str], blocks: RowBlocks | None) -> int:
        """Return the largest number of points of a nested reduction; 0 where one of them is no matmul of Q and K."""
        nested = conditions_of_nested_reductions(*values)
        if nested is None:
            return 0
        sizes = []
        for each, under in nested.items():
            found, size = qk_operands(each, self.summed), product(size for _, size in each.axes)
            if found is None or not isinstance(size, int) or not 1 <= size <= _MAX_HEAD_DIM_TILE:
                return 0
            q, k = found
            # Q is loaded once, before the loop, and K once per block for all rows of the tile.
            if free_symbols_of([k, *under], blocks) & rows or any(map(nested_reductions, (q, k, *under))):
                return 0
            if not all(condition.free_symbols & self.summed for condition in under):
                return 0
            sizes.append(size)
        return max(sizes)


class _PVMatcher(AttentionMatcher):
    """Matches statements that sum P times V."""

    def __init__(
        self, kernel: Kernel, number: int, statements: Sequence[Accumulate], known: SymbolTable
    ) -> None:
        values = [value for statement in statements for value in statement.values]
        super().__init__(number, kernel.outer, kernel.phases[number].axes, values, known)
        self.statements = statements

    def match(self, blocks: RowBlocks | None) -> FusedAttention | None:
        """Return the fused attention of the phase with rows in these blocks, with a loop bound if it has one."""
        scores = [s.values[0] for s in self.statements if s.combiner == SOFTMAX]
        terms = [s.values[0] for s in self.statements if s.combiner == SUM]
        bound = loop_bound_of([axis.name for axis in self.axes[:-1]], scores, terms)
        found = None if bound is None or not self.has_whole_tiles else self._match(blocks, bound)
        return found or self._match(blocks, None)

    def _match(self, blocks: RowBlocks | None, bound: LoopBound | None) -> FusedAttention | None:
        """Return the fused attention of the phase with these row blocks and this loop bound, if it is one."""
        pairs = [_pv_operands(statement, bound) for statement in self.statements]
        if None in pairs:
            return None
        statements = [replace(s, values=pair) for s, pair in zip(self.statements, pairs) if pair]
        operand_values = zip(*(statement.values for statement in statements), strict=True)
        p, v = (free_symbols_of(values, blocks) for values in operand_values)
        _, rows, columns = axes_by_operand(self.outer, p, v, self.labels(blocks).__getitem__)
        return self.build(statements, rows, columns, bound, blocks) if columns else None


def _pv_operands(statement: Accumulate, bound: LoopBound | None) -> tuple[Expr, Expr] | None:
    """Return P and V of a statement where ``bound`` holds, V in its low-precision dtype if it was cast from one.

    P is the score for a ``softmax_sum``. ``None`` where a value is not f32 or no such operands exist.
    """
    values = [without_bound(bound, value) for value in statement.values]
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
    p, v = value.args if nested_reductions(value.args[0]) else value.args[::-1]
    if nested_reductions(v) or not nested_reductions(p):
        return None
    narrow_p, narrow_v = narrow_float(p), narrow_float(v)
    if narrow_v is not None and narrow_p is not None and narrow_p.dtype == narrow_v.dtype:
        return narrow_p, narrow_v
    # P may exceed the range of f16, so that it is rounded to bf16 alone, which has the range of f32.
    return (cast(p, bf16), narrow_v) if narrow_v is not None and narrow_v.dtype == bf16 else (p, v)


def free_symbols_of(values: Iterable[Expr], blocks: RowBlocks | None) -> frozenset[str]:
    """Return the symbols that any of the values depends on, with a divided axis as its block and offset."""
    return frozenset().union(
        *(value.free_symbols if blocks is None else blocks.free_symbols(value) for value in values)
    )


def _divides_rows(blocks: RowBlocks, rows: Sequence[Axis]) -> bool:
    """True where the blocks of the last row axis are also blocks of all row axes flattened."""
    size = blocks.axis.size
    whole = len(rows) == 1 or (isinstance(size, int) and size % blocks.length == 0)
    return bool(rows) and rows[-1] == blocks.axis and whole


def _subterms(values: Iterable[Expr]) -> Iterator[Term]:
    """Yield each index term in the values and each of its subterms, once."""
    stack: list[Size] = [term for node in walk(*values) for term in node.terms]
    visited: set[Term] = set()
    while stack:
        term = stack.pop()
        if isinstance(term, Term) and term not in visited:
            visited.add(term)
            stack.extend(term.children())
            yield term
