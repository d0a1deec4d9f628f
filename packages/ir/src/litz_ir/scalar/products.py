"""Products of two factors: what sums that are products of matrices add up."""

from __future__ import annotations

from litz_ir.dtypes import f32, i8, i32
from litz_ir.scalar.expr import Expr, Op
from litz_ir.scalar.ops_table import MULTIPLICATIONS


def product_factors(expr: Expr) -> tuple[Expr, Expr] | None:
    """The factors of a product in f32, or in i32 of two numbers of 8 bits: machines have such for whole tiles. ``None``
    for any other expression."""
    if not isinstance(expr, Op) or expr.name not in MULTIPLICATIONS:
        return None
    left, right = expr.args
    return (left, right) if expr.dtype == f32 or (expr.dtype == i32 and _bytes(left, right)) else None


def _bytes(*factors: Expr) -> bool:
    return all(isinstance(x, Op) and x.name == "cast" and x.args[0].dtype == i8 for x in factors)
