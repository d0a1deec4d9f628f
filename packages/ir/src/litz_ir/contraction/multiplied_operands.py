"""The two operands of a multiplication, and the dtypes in which they are multiplied."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from litz_ir.dtypes import DType, bf16, f8e4m3fn, f8e5m2, f16, f32, i8, i32, u8
from litz_ir.scalar.build import cast, const
from litz_ir.scalar.expr import Const, Masked, Op
from litz_ir.scalar.node import Expr
from litz_ir.scalar.ops_table import MULTIPLICATIONS

F8 = frozenset({f8e4m3fn, f8e5m2})
"""The 8-bit floats that tensor cores multiply."""

_EXACT_OPERANDS: Mapping[DType, frozenset[DType]] = MappingProxyType(
    {bf16: frozenset({bf16, i8, u8}) | F8, f16: frozenset({f16, i8, u8}) | F8}
)
"""Dtypes whose values a 16-bit float represents exactly, by that float.

Operands of these dtypes are multiplied in that float; the results are exact in f32.
"""


def operands(expr: Expr) -> tuple[Expr, Expr] | None:
    """A and B of a multiplication in f32, or in i32 of two 8-bit integers, which tensor cores compute for whole tiles.

    ``None`` for any other expression.
    """
    if not isinstance(expr, Op) or expr.name not in MULTIPLICATIONS:
        return None
    a, b = expr.args
    return (a, b) if expr.dtype == f32 or (expr.dtype == i32 and cast_from(a) == cast_from(b) == i8) else None


def cast_from(expr: Expr) -> DType | None:
    """The dtype of the operand of a cast; ``None`` for any other expression."""
    return expr.args[0].dtype if isinstance(expr, Op) and expr.name == "cast" else None


def as_multiplied(a: Expr, b: Expr, multiply: str = "mul") -> tuple[Expr, Expr]:
    """A and B in the dtypes in which the scalar operation ``multiply`` multiplies them.

    Those are 8-bit dtypes if the operation allows the device's fp8 or int8 matmul, a 16-bit float if it represents
    both operands exactly, else the operands' own dtypes.
    """
    own, other = uncast(a), uncast(b)
    if own is None or other is None:
        return a, b
    if a.dtype == i32 or (multiply.startswith("mul_f8") and F8 >= {own.dtype, other.dtype}):
        return own, other
    for dtype, exact in _EXACT_OPERANDS.items():
        if exact >= {own.dtype, other.dtype}:
            return cast(own, dtype), cast(other, dtype)
    return a, b


def uncast(expr: Expr) -> Expr | None:
    """The operand of a cast, with the cast's zero mask if it has one; ``None`` for any other expression."""
    match expr:
        case Op(name="cast", args=(source,)):
            return source
        case Masked(other=Const() as other) if other.value == 0:
            body = uncast(expr.body)
            return None if body is None else Masked(expr.cond, body, const(0.0, body.dtype))
    return None


def narrow_float(expr: Expr) -> Expr | None:
    """The bf16 or f16 operand of a cast, with the cast's zero mask if it has one; ``None`` for any other
    expression.
    """
    found = uncast(expr)
    return found if found is not None and found.dtype in (bf16, f16) else None
