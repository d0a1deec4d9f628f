"""Constructors of loop bodies, which check dtypes against the operation table and evaluate literal operands."""

from __future__ import annotations

import math

from litz_ir.dtypes import DType, b1, f32, i64
from litz_ir.errors import DTypeError, GraphError
from litz_ir.scalar.expr import Checked, Const, Index, Load, Masked, Op
from litz_ir.scalar.node import Expr
from litz_ir.scalar.ops_table import OPS, ScalarOp
from litz_ir.symbols.term import Size

__all__ = ["const", "load", "index", "op", "cast", "where", "masked", "checked", "logical_and"]


def const(value: int | float | bool, dtype: DType) -> Const:
    """A literal of ``dtype``; integers wrap to its width."""
    if dtype.is_integer:
        value = wrap_integer(int(value), dtype)
    return Const(value, dtype)


def wrap_integer(value: int, dtype: DType) -> int:
    """``value`` modulo the width of the integer ``dtype``, as two's complement."""
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.kind == "int" and value >> (dtype.bits - 1) else value


def load(buffer: str, index: tuple[Size, ...], dtype: DType) -> Load:
    """The element of ``buffer`` at ``index``."""
    return Load(buffer, index, dtype)


def index(term: Size) -> Expr:
    """The value of an index term as ``i64``."""
    return Const(term, i64) if isinstance(term, int) else Index(term)


def op(name: str, *args: Expr, dtype: DType | None = None) -> Expr:
    """Apply an operation of the table.

    ``dtype`` is needed by the rules ``cast``, ``bitcast`` and ``random`` only. Raises :class:`DTypeError` if the
    arguments have different dtypes or the row does not accept them, :class:`GraphError` for an unknown name or a wrong
    number of arguments.
    """
    row = OPS.get(name)
    if row is None:
        raise GraphError(f"unknown scalar operation {name!r}", hint="see litz_ir.scalar.OPS")
    if len(args) != row.arity:
        raise GraphError(f"{name} takes {row.arity} arguments, got {len(args)}")
    return Op(name, args, result_dtype(row, tuple(a.dtype for a in args), dtype))


def result_dtype(row: ScalarOp, args: tuple[DType, ...], dtype: DType | None) -> DType:
    """The dtype of an operation over arguments of these dtypes; raises :class:`DTypeError`."""
    if row.rule in ("cast", "bitcast", "random"):
        if dtype is None:
            raise DTypeError(f"{row.name} needs a result dtype")
        if row.rule == "bitcast" and dtype.bits != args[0].bits:
            raise DTypeError(f"bitcast takes dtypes of one width, got {args[0]} to {dtype}")
        if row.rule == "random" and args != (i64, i64):
            raise DTypeError(
                f"{row.name} takes an i64 seed and an i64 counter, got {', '.join(map(str, args))}"
            )
        return dtype
    operands = args
    if row.rule == "where":
        if args[0] != b1:
            raise DTypeError(f"where takes a b1 condition, got {args[0]}")
        operands = args[1:]
    first = operands[0]
    if any(a != first for a in operands):
        raise DTypeError(
            f"{row.name} takes operands of one dtype, got {', '.join(map(str, args))}",
            hint="cast the operands to one dtype first",
        )
    if not _accepts(row, first):
        raise DTypeError(f"{row.name} does not accept {first}")
    return b1 if row.rule in ("compare", "test") else first


def _accepts(row: ScalarOp, dtype: DType) -> bool:
    match row.accepts:
        case "number":
            return not dtype.is_bool
        case "float":
            return dtype.is_float
        case "integer":
            return dtype.is_integer
        case "bits":
            return not dtype.is_float
        case "bool":
            return dtype.is_bool
        case "any":
            return True


def cast(value: Expr, dtype: DType) -> Expr:
    """``value`` converted to ``dtype``, or itself if it has that dtype; literals are converted at once if that is
    exact.
    """
    if value.dtype == dtype:
        return value
    if isinstance(value, Const):
        literal = _cast_literal(value.value, value.dtype, dtype)
        if literal is not None:
            return literal
    return Op("cast", (value,), dtype)


def _cast_literal(value: int | float | bool, source: DType, dtype: DType) -> Const | None:
    if dtype.is_bool:
        return Const(value != 0, dtype)
    if dtype.is_float:
        # Small integers are exact in every float; a narrower float is left to the machine's rounding.
        if source.is_float and dtype.mantissa >= source.mantissa and dtype.bits >= source.bits:
            rounded = _rounded(float(value), source)
            return None if rounded is None else Const(rounded, dtype)
        small = abs(value) <= 128 and float(value).is_integer() and dtype.bits >= 16
        return Const(float(value), dtype) if small else None
    if source.is_float:
        exact = abs(value) < 2**24 and float(value).is_integer() and wrap_integer(int(value), dtype) == value
        return Const(int(value), dtype) if exact else None
    return const(int(value), dtype)


def _rounded(value: float, dtype: DType) -> float | None:
    """The nearest value of a float dtype, ties to even, or ``None`` if it is subnormal or nearly overflows.

    A dtype below 32 bits is rounded to by way of f32, as casts do. Zero is ``None`` where the dtype may lack it.
    """
    if value == 0 and dtype.unsigned_zero:
        return None
    if value == 0 or not math.isfinite(value):
        return value
    if dtype.bits < f32.bits:
        through = _rounded(value, f32)
        if through is None:
            return None
        value = through
    fraction, exponent = math.frexp(value)
    if not 2 - dtype.bias <= exponent <= dtype.bias:
        return None
    digits = dtype.mantissa + 1
    return math.ldexp(round(math.ldexp(fraction, digits)), exponent - digits)


def where(cond: Expr, a: Expr, b: Expr) -> Expr:
    """``a`` where ``cond`` holds, else ``b``; both are evaluated."""
    if isinstance(cond, Const):
        return a if cond.value else b
    return a if a == b else op("where", cond, a, b)


def masked(cond: Expr, body: Expr, other: Expr) -> Expr:
    """``body`` where ``cond`` holds, else ``other``; ``body`` loads nothing where ``cond`` is false."""
    if isinstance(cond, Const):
        return body if cond.value else other
    return Masked(cond, body, other)


def checked(cond: Expr, body: Expr, fault: str) -> Expr:
    """``body``, with ``fault`` reported after the kernel if ``cond`` is false at some point."""
    if isinstance(cond, Const) and cond.value:
        return body
    return Checked(cond, body, fault)


def logical_and(*conds: Expr) -> Expr:
    """The conjunction of ``b1`` values; true if there are none."""
    result: Expr | None = None
    for cond in conds:
        if isinstance(cond, Const):
            if not cond.value:
                return cond
            continue
        result = cond if result is None else op("bit_and", result, cond)
    return Const(True, b1) if result is None else result
