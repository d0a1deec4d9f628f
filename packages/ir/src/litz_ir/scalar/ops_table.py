"""The scalar operation table: one row for each operation of loop bodies.

The arguments of an operation have one dtype; casts are explicit. The reference interpreter (``litz_ir.interp.scalar``)
defines the meaning of a row, and each code generator its spelling; a test fails if a row lacks either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

DTypeRule = Literal["same", "compare", "test", "where", "cast", "bitcast", "random"]
"""Rule that gives the dtype of an operation's result.

``same``: that of the arguments. ``compare``, ``test``: ``b1``. ``where``: that of the second and third argument; the
first is ``b1``. ``cast``, ``bitcast``: the requested one. ``random``: the requested one; the arguments are an ``i64``
seed and an ``i64`` counter.
"""
AcceptedDTypes = Literal["any", "number", "float", "integer", "bits", "bool"]
"""Dtypes that an operation accepts; ``bits`` means integers and ``b1``, ``number`` all but ``b1``."""


@dataclass(frozen=True, slots=True)
class ScalarOp:
    """A row of the scalar operation table."""

    name: str
    """Name of the operation."""
    arity: int
    """Number of arguments."""
    rule: DTypeRule = "same"
    """Rule that gives the result's dtype."""
    accepts: AcceptedDTypes = "any"
    """Dtypes of the arguments."""
    cost: int = 1
    """Estimated time in units of one addition."""
    commutative: bool = False
    """True if the arguments may be exchanged."""


MULTIPLICATIONS = frozenset({"mul", "mul_tf32", "mul_f8", "mul_f8_fast"})
"""Operations that multiply two values, exactly rounded or at reduced precision."""


_ROWS = (
    # conversion and choice
    ScalarOp("cast", 1, "cast"),
    ScalarOp("bitcast", 1, "bitcast", cost=0),
    ScalarOp("where", 3, "where"),
    # arithmetic; floats follow IEEE, integers wrap
    ScalarOp("add", 2, accepts="number", commutative=True),
    ScalarOp("sub", 2, accepts="number"),
    ScalarOp("mul", 2, accepts="number", commutative=True),
    # mul of f32 operands that may first be rounded to TF32 (11 significant bits)
    ScalarOp("mul_tf32", 2, accepts="float", commutative=True),
    # mul of operands that are representable in fp8; a sum over it may have the precision of the device's fp8 matmul,
    # and for mul_f8_fast need not be promoted to an f32 accumulator on the way
    ScalarOp("mul_f8", 2, accepts="float", commutative=True),
    ScalarOp("mul_f8_fast", 2, accepts="float", commutative=True),
    ScalarOp("fma", 3, accepts="float"),
    ScalarOp("div", 2, accepts="float", cost=4),
    ScalarOp("neg", 1, accepts="number"),
    ScalarOp("abs", 1, accepts="number"),
    ScalarOp("sign", 1, accepts="number", cost=2),
    ScalarOp("reciprocal", 1, accepts="float", cost=4),
    # division that rounds: floor_div and remainder follow Python's signs, trunc_div and fmod follow C's
    ScalarOp("floor_div", 2, accepts="number", cost=6),
    ScalarOp("remainder", 2, accepts="number", cost=8),
    ScalarOp("trunc_div", 2, accepts="integer", cost=6),
    ScalarOp("fmod", 2, accepts="number", cost=8),
    ScalarOp("gcd", 2, accepts="integer", cost=100),
    # minimum and maximum propagate NaN, fmin and fmax prefer the number
    ScalarOp("minimum", 2, accepts="any", commutative=True),
    ScalarOp("maximum", 2, accepts="any", commutative=True),
    ScalarOp("fmin", 2, accepts="float", commutative=True),
    ScalarOp("fmax", 2, accepts="float", commutative=True),
    # rounding; round is half to even
    ScalarOp("floor", 1, accepts="float"),
    ScalarOp("ceil", 1, accepts="float"),
    ScalarOp("trunc", 1, accepts="float"),
    ScalarOp("round", 1, accepts="float"),
    # powers and roots
    ScalarOp("sqrt", 1, accepts="float", cost=4),
    ScalarOp("rsqrt", 1, accepts="float", cost=6),
    ScalarOp("pow", 2, accepts="number", cost=30),
    ScalarOp("hypot", 2, accepts="float", cost=10),
    # exponentials and logarithms
    ScalarOp("exp", 1, accepts="float", cost=10),
    ScalarOp("exp2", 1, accepts="float", cost=10),
    ScalarOp("expm1", 1, accepts="float", cost=14),
    ScalarOp("log", 1, accepts="float", cost=12),
    ScalarOp("log2", 1, accepts="float", cost=12),
    ScalarOp("log10", 1, accepts="float", cost=12),
    ScalarOp("log1p", 1, accepts="float", cost=14),
    ScalarOp("sigmoid", 1, accepts="float", cost=14),
    # trigonometry
    ScalarOp("sin", 1, accepts="float", cost=14),
    ScalarOp("cos", 1, accepts="float", cost=14),
    ScalarOp("tan", 1, accepts="float", cost=20),
    ScalarOp("asin", 1, accepts="float", cost=16),
    ScalarOp("acos", 1, accepts="float", cost=16),
    ScalarOp("atan", 1, accepts="float", cost=16),
    ScalarOp("atan2", 2, accepts="float", cost=20),
    ScalarOp("sinh", 1, accepts="float", cost=16),
    ScalarOp("cosh", 1, accepts="float", cost=16),
    ScalarOp("tanh", 1, accepts="float", cost=14),
    ScalarOp("asinh", 1, accepts="float", cost=20),
    ScalarOp("acosh", 1, accepts="float", cost=20),
    ScalarOp("atanh", 1, accepts="float", cost=20),
    # special functions
    ScalarOp("erf", 1, accepts="float", cost=16),
    ScalarOp("erfc", 1, accepts="float", cost=20),
    ScalarOp("erfinv", 1, accepts="float", cost=24),
    ScalarOp("lgamma", 1, accepts="float", cost=40),
    ScalarOp("digamma", 1, accepts="float", cost=40),
    ScalarOp("zeta", 2, accepts="float", cost=400),
    ScalarOp("gamma_series", 2, accepts="float", cost=200),
    ScalarOp("gamma_fraction", 2, accepts="float", cost=400),
    ScalarOp("three_term", 7, accepts="float", cost=200),
    # bits
    ScalarOp("copysign", 2, accepts="float"),
    ScalarOp("nextafter", 2, accepts="float", cost=4),
    ScalarOp("bit_and", 2, accepts="bits", commutative=True),
    ScalarOp("bit_or", 2, accepts="bits", commutative=True),
    ScalarOp("bit_xor", 2, accepts="bits", commutative=True),
    ScalarOp("bit_not", 1, accepts="bits"),
    # a shift past the width gives 0 (shift_left) or the sign (shift_right)
    ScalarOp("shift_left", 2, accepts="integer"),
    ScalarOp("shift_right", 2, accepts="integer"),
    # comparisons
    ScalarOp("eq", 2, "compare", commutative=True),
    ScalarOp("ne", 2, "compare", commutative=True),
    ScalarOp("lt", 2, "compare"),
    ScalarOp("le", 2, "compare"),
    ScalarOp("gt", 2, "compare"),
    ScalarOp("ge", 2, "compare"),
    ScalarOp("isnan", 1, "test", accepts="float"),
    ScalarOp("isinf", 1, "test", accepts="float"),
    ScalarOp("signbit", 1, "test", accepts="number"),
    # counter-based random numbers (Philox4x32-10)
    ScalarOp("random_uniform", 2, "random", cost=40),
    ScalarOp("random_normal", 2, "random", cost=60),
    ScalarOp("random_bits", 2, "random", cost=40),
)

BUILT_IN = frozenset(row.name for row in _ROWS)
"""Names of litz's own rows."""

_TABLE = {row.name: row for row in _ROWS}

OPS: Mapping[str, ScalarOp] = MappingProxyType(_TABLE)
"""The rows by name: litz's own, and those that other packages registered."""


def add_operation(row: ScalarOp) -> None:
    """Add a row to the table; :func:`litz_ir.extension.register_operation` checks it first."""
    _TABLE[row.name] = row
