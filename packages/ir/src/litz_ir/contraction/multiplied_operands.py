"""The two operands of a product, and the dtypes that they are multiplied in."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from litz_ir.dtypes import DType, bf16, f8e4m3fn, f8e5m2, f16, f32, i8, i32, u8
from litz_ir.scalar.build import cast, const
from litz_ir.scalar.expr import Const, Expr, Masked, Op
from litz_ir.scalar.ops_table import MULTIPLICATIONS

F8 = frozenset({f8e4m3fn, f8e5m2})
"""The 8-bit floats that machines multiply."""

HELD_EXACTLY: Mapping[DType, frozenset[DType]] = MappingProxyType(
    {bf16: frozenset({bf16, i8, u8}) | F8, f16: frozenset({f16, i8, u8}) | F8}
)
"""The dtypes whose numbers a narrow float holds exactly. Operands of these are multiplied as that float; f32 holds
their products."""


def operands(expr: Expr) -> tuple[Expr, Expr] | None:
    """Return A and B of a product in f32, or in i32 of two 8-bit integers, which machines compute for whole tiles.

    ``None`` for any other expression.
    """
    if not isinstance(expr, Op) or expr.name not in MULTIPLICATIONS:
        return None
    a, b = expr.args
    return (a, b) if expr.dtype == f32 or (expr.dtype == i32 and cast_from(a) == cast_from(b) == i8) else None


def cast_from(expr: Expr) -> DType | None:
    """Return the dtype that a cast converts; ``None`` for any other expression."""
    return expr.args[0].dtype if isinstance(expr, Op) and expr.name == "cast" else None


def as_multiplied(a: Expr, b: Expr, multiply: str = "mul") -> tuple[Expr, Expr]:
    """Return A and B in the dtypes that the scalar operation ``multiply`` multiplies them in.

    They are 8-bit numbers where the machine's products of such are asked for, narrow floats of one dtype where that
    holds both exactly, and else as they are.
    """
    own, other = uncast(a), uncast(b)
    if own is None or other is None:
        return a, b
    if a.dtype == i32 or (multiply.startswith("mul_f8") and F8 >= {own.dtype, other.dtype}):
        return own, other
    for dtype, held in HELD_EXACTLY.items():
        if held >= {own.dtype, other.dtype}:
            return cast(own, dtype), cast(other, dtype)
    return a, b


def uncast(expr: Expr) -> Expr | None:
    """Return what a cast converts, masked as the cast is where zero stands in its place; ``None`` without a cast."""
    match expr:
        case Op(name="cast", args=(source,)):
            return source
        case Masked(other=Const() as other) if other.value == 0:
            body = uncast(expr.body)
            return None if body is None else Masked(expr.cond, body, const(0.0, body.dtype))
    return None


def narrow_float(expr: Expr) -> Expr | None:
    """Return the bf16 or f16 that an expression casts, masked likewise; ``None`` where it casts none."""
    found = uncast(expr)
    return found if found is not None and found.dtype in (bf16, f16) else None
