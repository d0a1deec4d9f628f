"""Recognition of kernels that are attention: a softmax-weighted sum whose scores are nested reductions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import gcd

from litz_ir.dtypes import f32
from litz_ir.loops import Axis, NamedCombiner
from litz_ir.plan import Accumulate, Kernel, Store
from litz_ir.scalar import (
    Const,
    Expr,
    Masked,
    NestedReduction,
    Op,
    Scalar,
    cast,
    const,
    indirects_in,
    masked,
    nested_reductions,
    substitute_expr,
    transform,
    walk,
)
from litz_ir.symbols import FloorDiv, Size, Symbol, Term, symbol

FIRST_QUERY = "attention.query"
"""The symbol of the first query of a block."""

PRODUCT = Scalar("attention.product", f32)
"""The product of query and key inside a score."""

QUERIES = 64
"""Queries of a block, a multiple of the lanes of all vectors: their scores with 64 keys fill 16 KB."""

KEYS = 64
"""The most keys of a block."""

_MOST_WIDTH = 256
"""The most elements of a query or a value."""

_SOFTMAX = NamedCombiner("softmax_sum")


@dataclass(frozen=True, slots=True)
class AttentionForm:
    """A kernel that computes softmax-weighted sums of values, and then stores results of each row or element."""

    batch: tuple[Axis, ...]
    """The outer axes besides the next two."""
    queries: Axis
    """The outer axis of the queries, which run along the lanes."""
    columns: Axis
    """The outer axis of the elements of a value."""
    block: int
    """Queries of a block: keys and values are the same for all of them."""
    summed: tuple[Axis, ...]
    """The axes of the keys; the last is divided into blocks."""
    width: tuple[str, int]
    """Name and size of the axis of the elements of a query."""
    query: Expr
    """An element of a query."""
    key: Expr
    """An element of a key, over :data:`FIRST_QUERY` in place of the query."""
    score: Expr
    """The score of :data:`PRODUCT`, over :data:`FIRST_QUERY` where that is enough."""
    value: Expr
    """An element of a value, over :data:`FIRST_QUERY` in place of the query."""
    seen: Expr | None
    """The condition, of the outer points and the leading axes of the keys, without which keys have no weight."""
    results: tuple[str, str, str]
    """The names of the maximum, the total weight and the weighted sum."""
    stores: tuple[Store, ...]
    """Statements of the results."""


def attention_form(kernel: Kernel) -> AttentionForm | None:
    """Match a kernel whose first phase is a softmax-weighted sum and whose others are plain stores."""
    if not kernel.phases or kernel.scratch or any(phase.axes for phase in kernel.phases[1:]):
        return None
    first, *rest = kernel.phases
    later = [statement for phase in rest for statement in phase.statements]
    stores = [each for each in later if isinstance(each, Store) and each.mode == "set"]
    if len(stores) < len(later) or len(first.statements) != 1 or not first.axes:
        return None
    (statement,) = first.statements
    if not isinstance(statement, Accumulate) or statement.combiner != _SOFTMAX:
        return None
    score, value = statement.values
    known = {info.name for info in kernel.symbols}
    if any(isinstance(each, Scalar) and each.name not in known for each in walk(score, value)):
        return None
    return _Matcher(kernel, first.axes, score, value).match(
        tuple(name for name, _ in statement.results), tuple(stores)
    )


class _Matcher:
    """The matching of one softmax-weighted sum."""

    def __init__(self, kernel: Kernel, summed: Sequence[Axis], score: Expr, value: Expr) -> None:
        self.kernel = kernel
        self.summed = tuple(summed)
        self.keys = frozenset(axis.name for axis in summed)
        self.score = score
        self.value = value

    def match(self, results: tuple[str, ...], stores: tuple[Store, ...]) -> AttentionForm | None:
        """Return the form, with the last outer axis that only scores depend on as that of the queries."""
        if self.score.dtype != f32 or self.value.dtype != f32 or nested_reductions(self.value):
            return None
        alone = [each for each in self.kernel.outer if each.name not in self.score.free_symbols]
        columns = [each for each in alone if each.name in self.value.free_symbols]
        if len(columns) != 1 or not isinstance(columns[0].size, int) or columns[0].size > _MOST_WIDTH:
            return None
        for queries in reversed([each for each in self.kernel.outer if each not in alone]):
            found = self._form(queries, columns[0], results, stores)
            if found is not None:
                return found
        return None

    def _operands(self, product: NestedReduction) -> tuple[Expr, Expr] | None:
        """Return query and key of a product over one axis of known size."""
        body = product.body
        if product.dtype != f32 or len(product.axes) != 1 or not isinstance(body, Op) or body.name != "mul":
            return None
        ((_, size),) = product.axes
        if not isinstance(size, int) or not 1 <= size <= _MOST_WIDTH:
            return None
        varies = [bool(each.free_symbols & self.keys) for each in body.args]
        if varies[0] == varies[1]:
            return None
        a, b = body.args
        return (b, a) if varies[0] else (a, b)

    def _block(self, queries: Axis, shared: Iterable[Expr]) -> int:
        """Return the queries of a block in which ``shared`` are the same; 0 where there is none."""
        length = QUERIES
        for term in _terms(shared):
            if isinstance(term, FloorDiv) and term.dividend == symbol(queries.name):
                if not isinstance(term.divisor, int):
                    return 0
                length = gcd(length, term.divisor)
        if length < _LEAST_BLOCK or any(_is_loose(term, queries.name) for term in _terms(shared)):
            return 0
        return length

    def _form(
        self, queries: Axis, columns: Axis, results: tuple[str, ...], stores: tuple[Store, ...]
    ) -> AttentionForm | None:
        score, value, seen = self.score, self.value, self._seen(queries, columns)
        if seen is not None:
            score, value = (transform(each, partial(_holding, seen)) for each in (score, value))
        products = nested_reductions(score)
        operands = self._operands(products[0]) if len(products) == 1 else None
        under = None if operands is None else _conditions(score, products[0])
        if operands is None or under is None or queries.name not in operands[0].free_symbols:
            return None
        query, key = operands
        for condition in under:
            key = masked(condition, key, const(0.0, key.dtype))
        block = self._block(queries, (value, key, *(() if seen is None else (seen,))))
        if not block:
            return None
        first = {queries.name: symbol(FIRST_QUERY)}
        score = transform(score, lambda node: PRODUCT if node == products[0] else node)
        score = transform(score, lambda node: self._of_block(node, queries, block))
        largest, total, weighted = results
        return AttentionForm(
            tuple(axis for axis in self.kernel.outer if axis not in (queries, columns)),
            queries, columns, block, self.summed, _width(products[0]), cast(query, f32),
            substitute_expr(cast(key, f32), first), score, substitute_expr(value, first),
            None if seen is None else substitute_expr(seen, first), (largest, total, weighted), stores,
        )  # fmt: skip

    def _of_block(self, node: Expr, queries: Axis, block: int) -> Expr:
        """Return a part of a score, of the first query of a block where it is the same for all of them."""
        if queries.name not in node.free_symbols or self._block(queries, (node,)) < block:
            return node
        return substitute_expr(node, {queries.name: symbol(FIRST_QUERY)})

    def _seen(self, queries: Axis, columns: Axis) -> Expr | None:
        """Return the condition without which the scores of whole blocks of keys are minus infinity."""
        score, value = self.score, self.value
        if not (isinstance(score, Masked) and isinstance(value, Masked) and score.cond == value.cond):
            return None
        hidden = isinstance(score.other, Const) and score.other.value == float("-inf")
        if not hidden or not isinstance(value.other, Const) or value.other.value != 0:
            return None
        varying = {self.summed[-1].name, columns.name}
        if score.cond.free_symbols & varying or not self._block(queries, (score.cond,)):
            return None
        return score.cond


_LEAST_BLOCK = 16
"""The fewest queries of a block, those of the widest vector."""


def _width(product: NestedReduction) -> tuple[str, int]:
    ((name, size),) = product.axes
    assert isinstance(size, int), "the operands were matched"
    return name, size


def _holding(condition: Expr, node: Expr) -> Expr:
    """Return a node where the condition holds."""
    return node.body if isinstance(node, Masked) and node.cond == condition else node


def _terms(roots: Iterable[Expr]) -> Iterator[Term]:
    """Yield each index term in expressions and each of its subterms, without those of quotients."""
    stack: list[Size] = [term for root in roots for node in _inside(root) for term in node.terms]
    visited: set[Term] = set()
    while stack:
        term = stack.pop()
        if isinstance(term, Term) and term not in visited:
            visited.add(term)
            yield term
            if not (isinstance(term, FloorDiv) and isinstance(term.dividend, Symbol)):
                stack.extend(term.children())


def _inside(root: Expr) -> Iterator[Expr]:
    """Yield the nodes of an expression, including those inside indirect indices."""
    stack, seen = [root], set[Expr]()
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            yield node
            stack.extend(node.children)
            stack.extend(atom.value for term in node.terms for atom in indirects_in(term))


def _is_loose(term: Term, name: str) -> bool:
    """Return True for the axis itself, which occurs in no quotient here."""
    return isinstance(term, Symbol) and term.name == name


def _conditions(root: Expr, product: NestedReduction) -> tuple[Expr, ...] | None:
    """Return the conditions around the product; ``None`` where it occurs under different ones or in an index."""
    found: set[tuple[Expr, ...]] = set()
    stack: list[tuple[Expr, tuple[Expr, ...]]] = [(root, ())]
    visited: set[tuple[Expr, tuple[Expr, ...]]] = set()
    while stack:
        node, under = stack.pop()
        if (node, under) in visited:
            continue
        visited.add((node, under))
        if node == product:
            found.add(under)
        elif isinstance(node, Masked):
            stack += [(node.cond, under), (node.body, (*under, node.cond)), (node.other, under)]
        else:
            stack += [(child, under) for child in node.children]
    return found.pop() if len(found) == 1 else None
