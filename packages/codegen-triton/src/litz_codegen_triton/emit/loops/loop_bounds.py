"""Loop bounds: conditions under which a summed axis ends early, such as a KV length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from litz_ir.dtypes import b1
from litz_ir.scalar import (
    Const,
    Expr,
    Index,
    Load,
    Masked,
    NestedReduction,
    Op,
    Scalar,
    cast,
    const,
    index,
    op,
    transform,
    walk,
)
from litz_ir.symbols import add, free_symbols, mul, symbol


@dataclass(frozen=True, slots=True)
class LoopBound:
    """A condition that ends a summed axis early: points of ``axis`` from ``count`` on add nothing to the sums."""

    axis: str
    """The name of the summed axis."""
    condition: Expr
    """The condition as it stands in the summed values; it holds exactly where ``axis`` is below ``count``."""
    count: Expr
    """The number of points of ``axis`` to sum, an integer that does not depend on it; may exceed the axis' size."""


def loop_bound_of(axes: Sequence[str], scores: Sequence[Expr], terms: Sequence[Expr]) -> LoopBound | None:
    """Return a loop bound along one of ``axes`` that all values share; ``None`` if there is none.

    Where its condition does not hold each of ``scores``, which a softmax weights, is minus infinity and each of
    ``terms``, which are summed, is zero.
    """
    for node in walk(*scores, *terms):
        found = _bound(node, axes)
        if found is not None:
            outside_scores = [assuming(score, node, False) for score in scores]
            outside_terms = [assuming(term, node, False) for term in terms]
            if all(_equals(score, -math.inf) for score in outside_scores) and all(
                _equals(term, 0.0) for term in outside_terms
            ):
                return found
    return None


def _bound(node: Expr, axes: Sequence[str]) -> LoopBound | None:
    """Return the bound that a comparison ``axis + start < count`` gives along one of ``axes``, if it is one."""
    match node:
        case Op(name="lt", args=(position, count)) if count.dtype.is_integer:
            while isinstance(position, Op) and position.name == "cast":
                (position,) = position.args
            if isinstance(position, Index):
                for axis in position.free_symbols & set(axes):
                    start = add(position.term, mul(symbol(axis), -1))
                    if axis not in free_symbols(start) and axis not in count.free_symbols:
                        rest = count if start == 0 else op("sub", count, cast(index(start), count.dtype))
                        return LoopBound(axis, node, rest)
    return None


def without_bound(bound: LoopBound | None, expr: Expr) -> Expr:
    """Return ``expr`` simplified for points where the bound's condition holds; unchanged without a bound."""
    return expr if bound is None else assuming(expr, bound.condition, True)


def _equals(expr: Expr, value: float) -> bool:
    """True for a constant of that value."""
    return isinstance(expr, Const) and expr.value == value


def division_of(bound: LoopBound | None, values: Sequence[Expr]) -> LoopBound | None:
    """Return a bound along the same axis that divides the loop in two parts, in each of which ``values`` are simpler.

    The blocks that a mask lists as full follow those that need the mask, for instance. ``None`` if there is none.
    """
    for node in walk(*values):
        found = None if bound is None else _bound(node, [bound.axis])
        if found is not None and any(assuming(each, node, True) != each for each in values):
            return found
    return None


def loads_less(values: Sequence[Expr], condition: Expr) -> bool:
    """Return whether values load less where ``condition`` is false."""
    return _loaded(values, condition, False) < _loaded(values, condition, True)


def of_a_part(value: Expr, condition: Expr, holds: bool) -> Expr:
    """Simplify a value with ``condition`` taken for true or false, except for positions, loads and nested reductions.

    Both parts of a loop share these, and they are right in both.
    """
    tested = frozenset(walk(condition))
    kinds = (NestedReduction, Index, Load)
    common = [node for node in walk(value) if isinstance(node, kinds) and node not in tested]
    inner = {below for node in common for below in walk(node) if below != node}
    names: dict[Expr, Expr] = {
        node: Scalar(f"common.{k}", node.dtype) for k, node in enumerate(common) if node not in inner
    }
    originals = {scalar: node for node, scalar in names.items()}
    hidden = transform(value, lambda node: names.get(node, node))
    return transform(assuming(hidden, condition, holds), lambda node: originals.get(node, node))


def _loaded(values: Sequence[Expr], condition: Expr, holds: bool) -> frozenset[str]:
    """Return the buffers of which elements are operands, not indices, where ``condition`` is true or false."""
    stack, found, visited = [assuming(each, condition, holds) for each in values], set[str](), set[Expr]()
    while stack:
        node = stack.pop()
        if isinstance(node, Load):
            found.add(node.buffer)
        elif not isinstance(node, NestedReduction) and node not in visited:
            visited.add(node)
            stack += node.children
    return frozenset(found)


def assuming(root: Expr, condition: Expr, holds: bool) -> Expr:
    """Simplify an expression with ``condition`` taken for true or false."""

    def node(expr: Expr) -> Expr:
        if expr == condition:
            return const(holds, b1)
        match expr:
            case Masked(cond=Const() as known):
                return expr.body if known.value else expr.other
            case Op(name="where", args=(Const() as known, body, other)):
                return body if known.value else other
            case Masked() if expr.body == expr.other:
                return expr.body
            case Op(name="where", args=(_, body, other)) if body == other:
                return body
            case (
                Op(name="bit_and", args=(Const(dtype=dtype) as known, other))
                | Op(name="bit_and", args=(other, Const(dtype=dtype) as known))
            ) if dtype == b1:
                return other if known.value else known
            case (
                Op(name="bit_or", args=(Const(dtype=dtype) as known, other))
                | Op(name="bit_or", args=(other, Const(dtype=dtype) as known))
            ) if dtype == b1:
                return known if known.value else other
            case Op(name="bit_not", args=(Const(dtype=dtype) as known,)) if dtype == b1:
                return const(not known.value, b1)
            case Op(name="cast", args=(Const() as known,)) if expr.dtype.is_float and known.value == 0:
                return const(0.0, expr.dtype)
            case Op(name="mul", args=args) if not holds and any(_equals(arg, 0.0) for arg in args):
                return const(0.0, expr.dtype)
            case Op(name="mul", args=(Const() as a, Const() as b)) if expr.dtype.is_float:
                return const(a.value * b.value, expr.dtype)
        return expr

    return transform(root, node)
