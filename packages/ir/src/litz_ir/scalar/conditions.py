"""Conditions under which parts of an expression are evaluated."""

from __future__ import annotations

from litz_ir.scalar.expr import Masked, NestedReduction, nested_reductions
from litz_ir.scalar.node import Expr

Conditions = tuple[Expr, ...]
"""Conditions, outermost first, that all hold where an expression is evaluated."""


def conditions_of_nested_reductions(*roots: Expr) -> dict[NestedReduction, Conditions] | None:
    """Map each nested reduction to the conditions of the ``Masked`` expressions around it.

    ``None`` where one occurs under different conditions or in an index, so that it has no one value at a point.
    """
    conditions: dict[NestedReduction, Conditions] = {}
    stack: list[tuple[Expr, Conditions]] = [(root, ()) for root in roots]
    visited: set[tuple[Expr, Conditions]] = set()
    while stack:
        expr, under = stack.pop()
        if (expr, under) in visited:
            continue
        visited.add((expr, under))
        if isinstance(expr, NestedReduction):
            if conditions.setdefault(expr, under) != under:
                return None
        elif isinstance(expr, Masked):
            stack += [(expr.cond, under), (expr.body, (*under, expr.cond)), (expr.other, under)]
        else:
            stack += [(child, under) for child in expr.children]
    return conditions if conditions.keys() == set(nested_reductions(*roots)) else None
