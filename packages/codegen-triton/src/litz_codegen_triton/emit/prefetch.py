"""The loads that a map may issue before it computes anything.

Square roots and quotients that are rounded as eager's have a slow way for odd operands, which is a branch, and no
assembler moves a load across one. Where a load stands behind them in the text, memory is idle meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from litz_ir.scalar import Expr, Load, Masked, Op, indirects_in


def early_loads(bodies: Iterable[Expr]) -> tuple[Load, ...]:
    """The loads that wait for no condition and no other load, in the order in which they are computed with."""
    return tuple(dict.fromkeys(_loads(bodies)))


def _loads(bodies: Iterable[Expr]) -> Iterator[Load]:
    seen: set[Expr] = set()
    stack = list(reversed(list(bodies)))
    while stack:
        expr = stack.pop()
        if expr in seen:
            continue
        seen.add(expr)
        match expr:
            case Load() if not any(map(indirects_in, expr.index)):
                yield expr
            case Masked():
                stack += [expr.other, expr.cond]
            case Op():
                stack += reversed(expr.args)
