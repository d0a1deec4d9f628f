"""Matmuls among loop nests: sums over K of ``a * b`` whose operands have no common axes except the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from litz_ir.contraction.multiplied_operands import operands
from litz_ir.dtypes import DType
from litz_ir.loops.nodes import Axis, Combiner, NamedCombiner
from litz_ir.scalar.build import op
from litz_ir.scalar.expr import Op, nested_reductions
from litz_ir.scalar.node import Expr

SUM, SOFTMAX_SUM = NamedCombiner("sum"), NamedCombiner("softmax_sum")

Weights = Literal["none", "softmax"]
"""Weights of a sum: none, or the softmax of the scores."""


@dataclass(frozen=True, slots=True)
class MatmulNest:
    """A loop nest that sums ``a * b`` over the axes ``k``, at every point of the axes ``batch``, ``m`` and ``n``.

    Axes have the order of the nest. A reduction ``softmax_sum`` sums ``exp(a - max(a)) * b``.
    """

    batch: tuple[Axis, ...]
    """Outer axes that both operands depend on, or neither."""
    m: tuple[Axis, ...]
    """Outer axes that only A depends on."""
    n: tuple[Axis, ...]
    """Outer axes that only B depends on."""
    k: tuple[Axis, ...]
    """Axes that are summed over."""
    a: Expr
    """Element of A, over ``batch``, ``m`` and ``k``."""
    b: Expr | None
    """Element of B, over ``batch``, ``n`` and ``k``; ``None`` if A, which is nested, is summed alone."""
    accumulator: DType
    """Dtype of the sum."""
    multiply: str = "mul"
    """Scalar operation that multiplies A and B, at its precision."""
    weights: Weights = "none"
    """``softmax`` if A is a score whose softmax B is multiplied by."""
    nested: bool = False
    """True if an operand contains a nested reduction, as the scores of attention do."""

    @property
    def outer(self) -> tuple[Axis, ...]:
        """The axes of the result in the order of a matmul: batch, M, N."""
        return (*self.batch, *self.m, *self.n)

    @property
    def summand(self) -> Expr:
        """The value that is summed over ``k``."""
        return self.a if self.b is None else op(self.multiply, self.a, self.b)


def matmul_nest(
    combiner: Combiner, values: Sequence[Expr], outer: Sequence[Axis], k: Sequence[Axis]
) -> MatmulNest | None:
    """The matmul that a reduction of ``values`` over ``k`` computes at every point of the ``outer`` axes.

    ``None`` for any other reduction and, unless it is nested, for one whose M or N is 1, which reuses no element.
    """
    nested = bool(nested_reductions(*values))
    found = _operands(combiner, values, nested)
    if found is None:
        return None
    a, b, multiply = found
    batch, m, n = axes_by_operand(outer, a.free_symbols, frozenset() if b is None else b.free_symbols)
    if not nested and not (_has_points(m) and _has_points(n)):
        return None
    weights: Weights = "softmax" if combiner == SOFTMAX_SUM else "none"
    return MatmulNest(batch, m, n, tuple(k), a, b, values[0].dtype, multiply, weights, nested)


def axes_by_operand(
    axes: Sequence[Axis],
    a: frozenset[str],
    b: frozenset[str],
    name: Callable[[Axis], str] = lambda axis: axis.name,
) -> tuple[tuple[Axis, ...], tuple[Axis, ...], tuple[Axis, ...]]:
    """Divide axes into batch, M and N by the symbols that A and B depend on; ``name`` gives an axis's symbol."""
    m = tuple(axis for axis in axes if name(axis) in a - b)
    n = tuple(axis for axis in axes if name(axis) in b - a)
    return tuple(axis for axis in axes if axis not in m + n), m, n


def _operands(
    combiner: Combiner, values: Sequence[Expr], nested: bool
) -> tuple[Expr, Expr | None, str] | None:
    """A and B of a reduction and the operation that multiplies them; no B if a nested A is summed alone."""
    if combiner == SOFTMAX_SUM:
        score, value = values
        return score, value, "mul"
    if combiner != SUM:
        return None
    (summand,) = values
    found = operands(summand)
    if found is None:
        return (summand, None, "mul") if nested else None
    assert isinstance(summand, Op)
    return *found, summand.name


def _has_points(axes: Sequence[Axis]) -> bool:
    return any(axis.size != 1 for axis in axes)
