"""Matmuls among loop nests: sums over K of a product whose operands share no other axes than those of the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from litz_ir.contraction.multiplied_operands import operands
from litz_ir.dtypes import DType
from litz_ir.loops.nodes import Axis, Combiner, NamedCombiner
from litz_ir.scalar.build import op
from litz_ir.scalar.expr import Expr, Op, nested_reductions

SUM, SOFTMAX_SUM = NamedCombiner("sum"), NamedCombiner("softmax_sum")

Weights = Literal["none", "softmax"]


@dataclass(frozen=True, slots=True)
class MatmulNest:
    """A loop nest that sums ``a * b`` over the axes ``k``, at every point of the axes ``batch``, ``m`` and ``n``.

    Axes keep the order that they have in the nest. A reduction ``softmax_sum`` sums ``exp(a - max(a)) * b``.
    """

    batch: tuple[Axis, ...]
    """The outer axes that both operands vary along, or neither."""
    m: tuple[Axis, ...]
    """The outer axes that A alone varies along."""
    n: tuple[Axis, ...]
    """The outer axes that B alone varies along."""
    k: tuple[Axis, ...]
    """The axes that are summed over."""
    a: Expr
    """An element of A: over ``batch``, ``m`` and ``k``."""
    b: Expr | None
    """An element of B: over ``batch``, ``n`` and ``k``; ``None`` where A, which is nested, is summed as it is."""
    accumulator: DType
    """The dtype of the sum."""
    multiply: str = "mul"
    """The scalar operation that multiplies A and B; it says how precisely."""
    weights: Weights = "none"
    """``softmax``: A is a score, and B is multiplied by its softmax."""
    nested: bool = False
    """True where an operand holds a reduction of its own, as the scores of attention do."""

    @property
    def outer(self) -> tuple[Axis, ...]:
        """The axes of the result, as a matmul has them: batch, M, N."""
        return (*self.batch, *self.m, *self.n)

    @property
    def product(self) -> Expr:
        """The value that is summed over ``k``."""
        return self.a if self.b is None else op(self.multiply, self.a, self.b)


def matmul_nest(
    combiner: Combiner, values: Sequence[Expr], outer: Sequence[Axis], k: Sequence[Axis]
) -> MatmulNest | None:
    """Return the matmul that a reduction of ``values`` over ``k`` is, at every point of the ``outer`` axes.

    ``None`` for any other reduction, and, unless it is nested, for one whose M or N is 1: it reuses no element.
    """
    nested = bool(nested_reductions(*values))
    found = _operands(combiner, values, nested)
    if found is None:
        return None
    a, b, multiply = found
    batch, m, n = axes_by_operand(outer, a.free_symbols, frozenset() if b is None else b.free_symbols)
    if not nested and not (_is_wide(m) and _is_wide(n)):
        return None
    weights: Weights = "softmax" if combiner == SOFTMAX_SUM else "none"
    return MatmulNest(batch, m, n, tuple(k), a, b, values[0].dtype, multiply, weights, nested)


def axes_by_operand(
    axes: Sequence[Axis],
    a: frozenset[str],
    b: frozenset[str],
    name: Callable[[Axis], str] = lambda axis: axis.name,
) -> tuple[tuple[Axis, ...], tuple[Axis, ...], tuple[Axis, ...]]:
    """Divide axes into batch, M and N by the symbols that A and B vary with; ``name`` gives an axis's symbol."""
    m = tuple(axis for axis in axes if name(axis) in a - b)
    n = tuple(axis for axis in axes if name(axis) in b - a)
    return tuple(axis for axis in axes if axis not in m + n), m, n


def _operands(
    combiner: Combiner, values: Sequence[Expr], nested: bool
) -> tuple[Expr, Expr | None, str] | None:
    """Return A and B of a reduction and the operation that multiplies them; no B where a nested A is summed alone."""
    if combiner == SOFTMAX_SUM:
        score, value = values
        return score, value, "mul"
    if combiner != SUM:
        return None
    (product,) = values
    found = operands(product)
    if found is None:
        return (product, None, "mul") if nested else None
    assert isinstance(product, Op)
    return *found, product.name


def _is_wide(axes: Sequence[Axis]) -> bool:
    return any(axis.size != 1 for axis in axes)
