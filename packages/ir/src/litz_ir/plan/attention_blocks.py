"""Attention that a CPU computes in blocks: sums of weighted values whose weights hold nested reductions.

A schedule says which axes have the rows and the elements of a value. As plain loops such a kernel would compute each
score once for every element of a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from litz_ir.dtypes import f32
from litz_ir.loops import Axis, NamedCombiner
from litz_ir.plan.kernel import Accumulate, Kernel, Store
from litz_ir.plan.schedule import CpuAttention
from litz_ir.scalar import (
    Const,
    Expr,
    Index,
    Masked,
    NestedReduction,
    Op,
    Scalar,
    cast,
    conditions_of_nested_reductions,
    const,
    indirects_in,
    masked,
    nested_reductions,
    substitute_expr,
    transform,
    walk,
)
from litz_ir.symbols import FloorDiv, Size, Symbol, Term, add, coefficient, minimum, mul, substitute, symbol

FIRST_QUERY = "attention.query"
"""The symbol of the first row of a block."""

_ONE_ROW = Axis("attention.row", 1)
"""The axis of a single row, where each point of the other axes has keys of its own."""

_MOST_WIDTH = 256
"""The most elements of a query or a value."""

_SOFTMAX, _SUM = NamedCombiner("softmax_sum"), NamedCombiner("sum")


@dataclass(frozen=True, slots=True)
class AttentionDot:
    """The dot of a row and a key, for each of them."""

    result: Scalar
    """The dot in weights."""
    axis: tuple[str, int]
    """Name and size of the axis of the elements."""
    row: Expr
    """An element of a row."""
    key: Expr
    """An element of a key, over :data:`FIRST_QUERY` in place of the row."""


@dataclass(frozen=True, slots=True)
class AttentionSum:
    """A sum over the keys of a weight times a value."""

    weight: Expr
    """The weight of a row and a key, over the dots, and over :data:`FIRST_QUERY` where that is enough."""
    value: Expr
    """An element of a value, over :data:`FIRST_QUERY` in place of the row."""
    result: str
    """The name of the sum."""


@dataclass(frozen=True, slots=True)
class BlockedAttention:
    """A kernel that computes weighted sums of values, and then stores results of each row or element.

    The rows are queries, or keys in the gradients of keys and values; "keys" are what the sums run over.
    """

    batch: tuple[Axis, ...]
    """The outer axes besides the next two."""
    queries: Axis
    """The outer axis of the rows, which run along the lanes."""
    columns: Axis
    """The outer axis of the elements of a value."""
    block: int
    """Rows of a block: keys and values are the same for all of them."""
    summed: tuple[Axis, ...]
    """The axes of the keys; the last is divided into blocks."""
    count: Size
    """The keys along the last of these axes, over :data:`FIRST_QUERY`; others of its size have no weight."""
    dots: tuple[AttentionDot, ...]
    """The dots that weights are computed from."""
    sums: tuple[AttentionSum, ...]
    """The sums."""
    softmax: tuple[str, str] | None
    """The names of the maximum and the total weight where the weights of the one sum are scores, whose softmax weights
    the values; ``None`` where they weight them as they are."""
    seen: Expr | None
    """The condition, of the outer points and the leading axes of the keys, without which keys have no weight."""
    stores: tuple[Store, ...]
    """Statements of the results."""


def terms_not_divided(roots: Iterable[Expr]) -> Iterator[Term]:
    """Yield each index term in expressions and each of its subterms, but not an axis that is divided."""
    nodes, seen = list(roots), set[Expr]()
    stack: list[Size] = []
    while nodes:
        node = nodes.pop()
        if node not in seen:
            seen.add(node)
            nodes += node.children
            nodes += [atom.value for term in node.terms for atom in indirects_in(term)]
            stack += node.terms
    visited: set[Term] = set()
    while stack:
        term = stack.pop()
        if isinstance(term, Term) and term not in visited:
            visited.add(term)
            yield term
            if not (isinstance(term, FloorDiv) and isinstance(term.dividend, Symbol)):
                stack.extend(term.children())


def attention_of(kernel: Kernel, schedule: CpuAttention) -> BlockedAttention | None:
    """Return what a kernel computes under a schedule; ``None`` where it does not suit the kernel.

    The first phase of such a kernel is weighted sums over nested reductions, the others are plain stores.
    """
    if not kernel.phases or kernel.scratch or any(phase.axes for phase in kernel.phases[1:]):
        return None
    first, *rest = kernel.phases
    later = [statement for phase in rest for statement in phase.statements]
    stores = [each for each in later if isinstance(each, Store) and each.mode == "set"]
    sums = [each for each in first.statements if isinstance(each, Accumulate)]
    if len(stores) < len(later) or len(sums) < len(first.statements) or not sums or not first.axes:
        return None
    known = {info.name for info in kernel.symbols}
    values = [value for each in sums for value in each.values]
    if any(isinstance(each, Scalar) and each.name not in known for each in walk(*values)):
        return None
    if len(sums) == 1 and sums[0].combiner == _SOFTMAX:
        largest, total, weighted = (name for name, _ in sums[0].results)
        score, value = sums[0].values
        matcher = _Matcher(
            kernel, schedule, first.axes, (AttentionSum(score, value, weighted),), (largest, total)
        )
    elif all(each.combiner == _SUM for each in sums):
        terms = [_term(each.values[0], each.results[0][0]) for each in sums]
        found = tuple(each for each in terms if each is not None)
        if len(found) < len(terms):
            return None
        matcher = _Matcher(kernel, schedule, first.axes, found, None)
    else:
        return None
    return matcher.match(tuple(stores))


def _term(value: Expr, result: str) -> AttentionSum | None:
    """Return the weight, which holds nested reductions, and the value of a summand."""
    if not isinstance(value, Op) or value.name != "mul":
        return None
    a, b = value.args
    if not nested_reductions(a):
        a, b = b, a
    return AttentionSum(a, b, result)


class _Matcher:
    """The matching of the sums of one kernel."""

    def __init__(
        self,
        kernel: Kernel,
        schedule: CpuAttention,
        summed: Sequence[Axis],
        sums: tuple[AttentionSum, ...],
        softmax: tuple[str, str] | None,
    ) -> None:
        self.kernel = kernel
        self.schedule = schedule
        self.summed = tuple(summed)
        self.keys = frozenset(axis.name for axis in summed)
        self.sums = sums
        self.softmax = softmax

    def match(self, stores: tuple[Store, ...]) -> BlockedAttention | None:
        """Return the form over the axes of the rows and columns."""
        weights = frozenset[str]().union(*(each.weight.free_symbols for each in self.sums))
        values = frozenset[str]().union(*(each.value.free_symbols for each in self.sums))
        for each in self.sums:
            if each.weight.dtype != f32 or each.value.dtype != f32 or nested_reductions(each.value):
                return None
        alone = [each for each in self.kernel.outer if each.name not in weights]
        columns = [each for each in alone if each.name in values]
        if [each.name for each in columns] != [self.schedule.columns]:
            return None
        if not isinstance(columns[0].size, int) or columns[0].size > _MOST_WIDTH:
            return None
        name = self.schedule.rows
        if name is None:
            rows = _ONE_ROW if self.schedule.lanes == "columns" else None
        else:
            rows = next((each for each in self.kernel.outer if each.name == name and each not in alone), None)
        if rows is None:
            return None
        if self.schedule.lanes == "columns" and (self.softmax is None or self.schedule.block != rows.size):
            return None
        return self._form(rows, columns[0], stores)

    def _dot(self, dot: NestedReduction, number: int, under: tuple[Expr, ...]) -> AttentionDot | None:
        """Return the row and the key of a dot over one axis of known size."""
        body = dot.body
        if dot.dtype != f32 or len(dot.axes) != 1 or not isinstance(body, Op) or body.name != "mul":
            return None
        ((name, size),) = dot.axes
        if not isinstance(size, int) or not 1 <= size <= _MOST_WIDTH:
            return None
        varies = [bool(each.free_symbols & self.keys) for each in body.args]
        if varies[0] == varies[1]:
            return None
        row, key = body.args[::-1] if varies[0] else body.args
        for condition in under:
            key = masked(condition, key, const(0.0, key.dtype))
        return AttentionDot(
            Scalar(f"attention.dot{number}", f32), (name, size), cast(row, f32), cast(key, f32)
        )

    def _is_shared(self, queries: Axis, common: Iterable[Expr]) -> bool:
        """Return True where ``common`` are the same for all rows of a block."""
        block = self.schedule.block
        for term in terms_not_divided(common):
            if isinstance(term, Symbol) and term.name == queries.name:
                return False
            if isinstance(term, FloorDiv) and term.dividend == symbol(queries.name):
                divisor = term.divisor
                if not isinstance(divisor, int):
                    return False
                if divisor % block and (block != queries.size or block > divisor):
                    return False
        return True

    def _form(self, queries: Axis, columns: Axis, stores: tuple[Store, ...]) -> BlockedAttention | None:
        sums, seen = self.sums, self._seen(self.sums, queries, columns)
        if seen is not None:
            sums = _without(sums, seen)
        within = self._within(sums, queries, columns)
        if within is not None:
            sums = _without(sums, within)
        dots = self._dots(tuple(each.weight for each in sums))
        if dots is None:
            return None
        if queries is _ONE_ROW:
            others = {each.name for each in self.kernel.outer if each != columns and each.size != 1}
            if any(not others <= each.key.free_symbols for each in dots.values()):
                return None
        elif any(queries.name not in each.row.free_symbols for each in dots.values()):
            return None
        common = [each.value for each in sums] + [each.key for each in dots.values()]
        if not self._is_shared(queries, common):
            return None
        first = {queries.name: symbol(FIRST_QUERY)}
        count = self.summed[-1].size if within is None else _keys_within(within, self.summed[-1])

        def of_dots(weight: Expr) -> Expr:
            weight = transform(weight, lambda node: dots[node].result if node in dots else node)
            return transform(weight, lambda node: self._of_block(node, queries))

        return BlockedAttention(
            tuple(axis for axis in self.kernel.outer if axis not in (queries, columns)),
            queries, columns, self.schedule.block, self.summed, substitute(count, first),
            tuple(
                AttentionDot(each.result, each.axis, each.row, substitute_expr(each.key, first))
                for each in dots.values()
            ),
            tuple(
                AttentionSum(of_dots(each.weight), substitute_expr(each.value, first), each.result)
                for each in sums
            ),
            self.softmax, None if seen is None else substitute_expr(seen, first), stores,
        )  # fmt: skip

    def _dots(self, weights: tuple[Expr, ...]) -> dict[Expr, AttentionDot] | None:
        """Return the dots that weights are computed from, by their nested reductions."""
        conditions = conditions_of_nested_reductions(*weights)
        if conditions is None:
            return None
        dots: dict[Expr, AttentionDot] = {}
        for number, dot in enumerate(nested_reductions(*weights)):
            matched = self._dot(dot, number, conditions[dot])
            if matched is None:
                return None
            dots[dot] = matched
        return dots or None

    def _of_block(self, node: Expr, queries: Axis) -> Expr:
        """Return a part of a weight, of the first row of a block where it is the same for all of them."""
        if queries.name not in node.free_symbols or not self._is_shared(queries, (node,)):
            return node
        return substitute_expr(node, {queries.name: symbol(FIRST_QUERY)})

    def _condition(self, sums: tuple[AttentionSum, ...]) -> Expr | None:
        """Return the one condition without which all weights are those of hidden keys, and all values zero."""
        hidden = 0.0 if self.softmax is None else float("-inf")
        conditions: set[Expr] = set()
        for each in sums:
            for part, other in ((each.weight, hidden), (each.value, 0.0)):
                if (
                    not isinstance(part, Masked)
                    or not isinstance(part.other, Const)
                    or part.other.value != other
                ):
                    return None
                conditions.add(part.cond)
        return conditions.pop() if len(conditions) == 1 else None

    def _seen(self, sums: tuple[AttentionSum, ...], queries: Axis, columns: Axis) -> Expr | None:
        """Return the condition without which the weights of whole blocks of keys are those of hidden keys."""
        condition = self._condition(sums)
        varying = {self.summed[-1].name, columns.name}
        if (
            condition is None
            or condition.free_symbols & varying
            or not self._is_shared(queries, (condition,))
        ):
            return None
        return condition

    def _within(self, sums: tuple[AttentionSum, ...], queries: Axis, columns: Axis) -> Expr | None:
        """Return the condition that a position, which grows with the last axis of the keys, is below a number."""
        condition, keys = self._condition(sums), self.summed[-1].name
        if not isinstance(condition, Op) or condition.name != "lt" or columns.name in condition.free_symbols:
            return None
        at, end = condition.args
        if not isinstance(at, Index) or coefficient(at.term, keys) != 1 or keys in end.free_symbols:
            return None
        return (
            condition if isinstance(end, Index | Const) and self._is_shared(queries, (condition,)) else None
        )


def _keys_within(condition: Expr, keys: Axis) -> Size:
    """Return the number of keys at which such a condition holds; none where it is negative."""
    at, end = condition.children
    assert isinstance(at, Index) and isinstance(end, Index | Const), "the form has so"
    limit = end.term if isinstance(end, Index) else int(end.value)
    return minimum(keys.size, add(limit, mul(substitute(at.term, {keys.name: 0}), -1)))


def _without(sums: Iterable[AttentionSum], condition: Expr) -> tuple[AttentionSum, ...]:
    """Return sums where a condition holds."""
    shown = partial(_holding, condition)
    return tuple(
        AttentionSum(transform(each.weight, shown), transform(each.value, shown), each.result)
        for each in sums
    )


def _holding(condition: Expr, node: Expr) -> Expr:
    """Return a node where the condition holds."""
    return node.body if isinstance(node, Masked) and node.cond == condition else node
