"""Guards: conditions that say how far along an axis there is anything to sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from litz_ir.dtypes import b1
from litz_ir.scalar import Const, Expr, Index, Masked, Op, cast, const, index, op, transform, walk
from litz_ir.symbols import add, free_symbols, mul, symbol


@dataclass(frozen=True, slots=True)
class LoopBound:
    """``condition`` holds where ``axis`` is below ``count``, an integer; elsewhere the sums get nothing."""

    axis: str
    condition: Expr
    count: Expr


def loop_bound_of(axes: Sequence[str], scores: Sequence[Expr], terms: Sequence[Expr]) -> LoopBound | None:
    """The guard along one of the axes of sums by a softmax of ``scores``, minus infinity where it does not hold, and of
    sums of ``terms``, zero there; ``None`` if they have none."""
    for node in walk(*scores, *terms):
        found = _bound(node, axes)
        if found is not None:
            hidden = [_settled(score, node, False) for score in scores]
            nothing = [_settled(term, node, False) for term in terms]
            if all(_equals(each, -math.inf) for each in hidden) and all(
                _equals(each, 0.0) for each in nothing
            ):
                return found
    return None


def _bound(node: Expr, axes: Sequence[str]) -> LoopBound | None:
    """What a comparison says of an axis to which something may be added."""
    match node:
        case Op(name="lt", args=(place, count)) if count.dtype.is_integer:
            while isinstance(place, Op) and place.name == "cast":
                (place,) = place.args
            if isinstance(place, Index):
                for axis in place.free_symbols & set(axes):
                    ahead = add(place.term, mul(symbol(axis), -1))
                    if axis not in free_symbols(ahead) and axis not in count.free_symbols:
                        rest = count if ahead == 0 else op("sub", count, cast(index(ahead), count.dtype))
                        return LoopBound(axis, node, rest)
    return None


def without_bound(guard: LoopBound | None, expr: Expr) -> Expr:
    """The expression where a guard holds."""
    return expr if guard is None else _settled(expr, guard.condition, True)


def _equals(expr: Expr, value: float) -> bool:
    return isinstance(expr, Const) and expr.value == value


def _settled(root: Expr, condition: Expr, holds: bool) -> Expr:
    """The expression where a condition holds, or where it does not."""

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
            case Op(name="bit_and", args=(Const(dtype=dtype) as known, other)) if dtype == b1:
                return other if known.value else known
            case Op(name="bit_and", args=(other, Const(dtype=dtype) as known)) if dtype == b1:
                return other if known.value else known
            case Op(name="cast", args=(Const() as known,)) if expr.dtype.is_float and known.value == 0:
                return const(0.0, expr.dtype)
            case Op(name="mul", args=args) if not holds and any(_equals(arg, 0.0) for arg in args):
                return const(0.0, expr.dtype)
            case Op(name="mul", args=(Const() as a, Const() as b)) if expr.dtype.is_float:
                return const(a.value * b.value, expr.dtype)
        return expr

    return transform(root, node)
