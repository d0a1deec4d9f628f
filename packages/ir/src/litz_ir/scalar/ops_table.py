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

Rule = Literal["same", "compare", "test", "where", "cast", "bitcast", "random"]
Accepts = Literal["any", "number", "float", "integer", "bits", "bool"]


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
    rule: Rule = "same"
    accepts: Accepts = "any"
    cost: int = 1
    commutative: bool = False


HEAVY = 8


def _rows() -> tuple[ScalarOp, ...]:
    op = ScalarOp
    return (
        # conversion and choice
        op("cast", 1, "cast"),
        op("bitcast", 1, "bitcast", cost=0),
        op("where", 3, "where"),
        # arithmetic; floats follow IEEE, integers wrap
        op("add", 2, accepts="number", commutative=True),
        op("sub", 2, accepts="number"),
        op("mul", 2, accepts="number", commutative=True),
        op("fma", 3, accepts="float"),
        op("div", 2, accepts="float", cost=4),
        op("neg", 1, accepts="number"),
        op("abs", 1, accepts="number"),
        op("sign", 1, accepts="number", cost=2),
        op("reciprocal", 1, accepts="float", cost=4),
        # division that rounds: floor_div and remainder follow Python's signs, trunc_div and fmod follow C's
        op("floor_div", 2, accepts="number", cost=6),
        op("remainder", 2, accepts="number", cost=8),
        op("trunc_div", 2, accepts="integer", cost=6),
        op("fmod", 2, accepts="number", cost=8),
        op("gcd", 2, accepts="integer", cost=100),
        # minimum and maximum propagate NaN, fmin and fmax prefer the number
        op("minimum", 2, accepts="any", commutative=True),
        op("maximum", 2, accepts="any", commutative=True),
        op("fmin", 2, accepts="float", commutative=True),
        op("fmax", 2, accepts="float", commutative=True),
        # rounding; round is half to even
        op("floor", 1, accepts="float"),
        op("ceil", 1, accepts="float"),
        op("trunc", 1, accepts="float"),
        op("round", 1, accepts="float"),
        # powers and roots
        op("sqrt", 1, accepts="float", cost=4),
        op("rsqrt", 1, accepts="float", cost=6),
        op("pow", 2, accepts="number", cost=30),
        op("hypot", 2, accepts="float", cost=10),
        # exponentials and logarithms
        op("exp", 1, accepts="float", cost=10),
        op("exp2", 1, accepts="float", cost=10),
        op("expm1", 1, accepts="float", cost=14),
        op("log", 1, accepts="float", cost=12),
        op("log2", 1, accepts="float", cost=12),
        op("log10", 1, accepts="float", cost=12),
        op("log1p", 1, accepts="float", cost=14),
        op("sigmoid", 1, accepts="float", cost=14),
        # trigonometry
        op("sin", 1, accepts="float", cost=14),
        op("cos", 1, accepts="float", cost=14),
        op("tan", 1, accepts="float", cost=20),
        op("asin", 1, accepts="float", cost=16),
        op("acos", 1, accepts="float", cost=16),
        op("atan", 1, accepts="float", cost=16),
        op("atan2", 2, accepts="float", cost=20),
        op("sinh", 1, accepts="float", cost=16),
        op("cosh", 1, accepts="float", cost=16),
        op("tanh", 1, accepts="float", cost=14),
        op("asinh", 1, accepts="float", cost=20),
        op("acosh", 1, accepts="float", cost=20),
        op("atanh", 1, accepts="float", cost=20),
        # special functions
        op("erf", 1, accepts="float", cost=16),
        op("erfc", 1, accepts="float", cost=20),
        op("erfinv", 1, accepts="float", cost=24),
        op("lgamma", 1, accepts="float", cost=40),
        op("digamma", 1, accepts="float", cost=40),
        op("zeta", 2, accepts="float", cost=400),
        op("gamma_series", 2, accepts="float", cost=200),
        op("gamma_fraction", 2, accepts="float", cost=400),
        op("three_term", 7, accepts="float", cost=200),
        # bits
        op("copysign", 2, accepts="float"),
        op("nextafter", 2, accepts="float", cost=4),
        op("bit_and", 2, accepts="bits", commutative=True),
        op("bit_or", 2, accepts="bits", commutative=True),
        op("bit_xor", 2, accepts="bits", commutative=True),
        op("bit_not", 1, accepts="bits"),
        # a shift past the width gives 0 (shift_left) or the sign (shift_right)
        op("shift_left", 2, accepts="integer"),
        op("shift_right", 2, accepts="integer"),
        # comparisons
        op("eq", 2, "compare", commutative=True),
        op("ne", 2, "compare", commutative=True),
        op("lt", 2, "compare"),
        op("le", 2, "compare"),
        op("gt", 2, "compare"),
        op("ge", 2, "compare"),
        op("isnan", 1, "test", accepts="float"),
        op("isinf", 1, "test", accepts="float"),
        op("signbit", 1, "test", accepts="number"),
        # counter-based random numbers (Philox4x32-10)
        op("random_uniform", 2, "random", cost=40),
        op("random_normal", 2, "random", cost=60),
        op("random_bits", 2, "random", cost=40),
    )


OPS: Mapping[str, ScalarOp] = MappingProxyType({row.name: row for row in _rows()})
