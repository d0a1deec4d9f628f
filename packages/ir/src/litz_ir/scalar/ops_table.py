"""The scalar operation table: one row per operation that a loop body may hold.

Every operation has one dtype: its arguments agree and casts are explicit. What a row means is stated by the reference
interpreter (``litz_ir.interp.scalar``), how it is spelled by each code generator; a test fails where a row lacks
either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

DTypeRule = Literal["same", "compare", "test", "where", "cast", "bitcast", "random"]
AcceptedDTypes = Literal["any", "number", "float", "integer", "bits", "bool"]


@dataclass(frozen=True, slots=True)
class ScalarOp:
    """A row: ``cost`` is in units of one add; above :data:`HEAVY` recomputing is worth avoiding.

    ``rule`` gives the result's dtype: ``same`` as the arguments; ``compare`` and ``test`` give ``b1``; ``where`` takes
    a ``b1`` and two alike; ``cast`` and ``bitcast`` convert to the dtype asked for; ``random`` takes an ``i64`` seed
    and an ``i64`` counter and gives the dtype asked for.
    ``accepts`` restricts the arguments: ``bits`` means integers and ``b1``.
    """

    name: str
    arity: int
    rule: DTypeRule = "same"
    accepts: AcceptedDTypes = "any"
    cost: int = 1
    commutative: bool = False


HEAVY = 8

MULTIPLICATIONS = frozenset({"mul", "mul_tf32", "mul_f8", "mul_f8_fast"})
"""What multiplies two factors, as precisely as it may."""


_ROWS = (
    # conversion and choice
    ScalarOp("cast", 1, "cast"),
    ScalarOp("bitcast", 1, "bitcast", cost=0),
    ScalarOp("where", 3, "where"),
    # arithmetic; floats follow IEEE, integers wrap
    ScalarOp("add", 2, accepts="number", commutative=True),
    ScalarOp("sub", 2, accepts="number"),
    ScalarOp("mul", 2, accepts="number", commutative=True),
    # mul, where factors of f32 may be rounded to TF32 (11 significant bits) first
    ScalarOp("mul_tf32", 2, accepts="float", commutative=True),
    # mul of factors that 8-bit floats hold, where sums of products may be as rough as the machine's own of such are;
    # mul_f8_fast where these sums need not be brought to f32 on the way
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

OPS: Mapping[str, ScalarOp] = MappingProxyType({row.name: row for row in _ROWS})
