"""Loads that a pointwise phase can issue before it computes.

Correctly rounded square roots and quotients have a slow path for special operands. It is a branch, and the assembler
moves no load across a branch: a load after one in the text would leave memory idle until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from litz_ir.scalar import Expr, Load, Masked, Op, indirects_in


def early_loads(bodies: Iterable[Expr]) -> tuple[Load, ...]:
    """Return the loads that depend on no mask and on no other load, in the order of their uses."""
    return tuple(dict.fromkeys(_loads(bodies)))


def _loads(bodies: Iterable[Expr]) -> Iterator[Load]:
    visited: set[Expr] = set()
    stack = list(reversed(list(bodies)))
    while stack:
        expr = stack.pop()
        if expr in visited:
            continue
        visited.add(expr)
        match expr:
            case Load() if not any(map(indirects_in, expr.index)):
                yield expr
            case Masked():
                stack += [expr.other, expr.cond]
            case Op():
                stack += reversed(expr.args)
