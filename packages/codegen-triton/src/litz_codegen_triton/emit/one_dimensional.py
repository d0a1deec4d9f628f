"""What a left factor of a chain knows of rows alone, or of summed points alone: such is written over one dimension.

Triton would have each thread of a tile of products hold what it reads of a row once for every column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from litz_ir.scalar import Checked, Const, Expr, Index, Masked, NestedReduction, loads, nested_reductions


def one_dimensional_terms(values: Iterable[Expr], names: Mapping[str, frozenset[str]]) -> dict[Expr, str]:
    """The largest parts of values that read something and know one dimension only, each with its letter; ``names`` are
    the indices that run along each. What is read under a condition stays there."""
    found: dict[Expr, str] = {}
    stack = list(values)
    seen: set[Expr] = set()
    while stack:
        expr = stack.pop()
        if expr in seen or isinstance(expr, (Const, Index, NestedReduction, Checked)):
            continue
        seen.add(expr)
        known = [letter for letter, own in names.items() if expr.free_symbols & own]
        if len(known) == 1 and loads(expr) and not nested_reductions(expr):
            found[expr] = known[0]
        elif isinstance(expr, Masked):
            stack += [expr.cond, expr.other]
        else:
            stack += expr.children
    return found
