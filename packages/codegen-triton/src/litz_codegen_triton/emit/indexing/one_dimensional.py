"""Subexpressions of attention scores that vary along rows alone or along summed points alone.

They are computed over one dimension of the tile of scores. Computed over both, each thread would hold a value that was
loaded for a row once for every column of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from litz_ir.scalar import Checked, Const, Expr, Index, Masked, NestedReduction, loads, nested_reductions


def one_dimensional_terms(values: Iterable[Expr], names: Mapping[str, frozenset[str]]) -> dict[Expr, str]:
    """Return the largest subexpressions that load something and vary along one dimension, each with its letter.

    ``names`` holds the indices that run along each dimension. The body of a masked expression is not taken out of it,
    since its loads need the mask.
    """
    found: dict[Expr, str] = {}
    stack = list(values)
    visited: set[Expr] = set()
    while stack:
        expr = stack.pop()
        if expr in visited or isinstance(expr, (Const, Index, NestedReduction, Checked)):
            continue
        visited.add(expr)
        letters = [letter for letter, own in names.items() if expr.free_symbols & own]
        if len(letters) == 1 and loads(expr) and not nested_reductions(expr):
            found[expr] = letters[0]
        elif isinstance(expr, Masked):
            stack += [expr.cond, expr.other]
        else:
            stack += expr.children
    return found
