"""The functions of the vector maths, how far each may lie from the exact value, and what is read along with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

DType = Literal["f32", "f64"]
DTYPES: tuple[DType, ...] = ("f32", "f64")


@dataclass(frozen=True, slots=True)
class Function:
    """A row: ``f32`` and ``f64`` are bounds in units of the last place; ``None`` where the harness has no reference.

    ``unfused`` is the bound in ``f64`` where products are not fused, if it is another: there the C library's function
    serves, or each product is rounded. ``focus`` names the pairs that a function of two arguments is tried on beside
    those of all exponents.
    """

    name: str
    f32: float
    f64: float | None
    arity: int = 1
    focus: Literal["near", "power"] = "near"
    unfused: float | None = None

    def bound(self, dtype: DType, *, fused: bool = True) -> float | None:
        """The largest distance from the exact value that is allowed, in units of the last place."""
        if dtype == "f32":
            return self.f32
        return self.f64 if fused or self.unfused is None else self.unfused


_ROWS = (
    Function("exp", 1.5, 1.5),
    Function("log", 1, 1),
    Function("tanh", 2, 2, unfused=2.5),
    Function("erf", 1.5, 1.5),
    Function("sigmoid", 2, 2),
    Function("sin", 2, 2),
    Function("cos", 2, 2),
    Function("tan", 1.5, 1),
    Function("exp2", 1.5, 1.5),
    Function("expm1", 1.5, 2),
    Function("log2", 2, 1.5),
    Function("log10", 2, 1.5),
    Function("log1p", 1.5, 1.5),
    Function("rsqrt", 1.5, 1.5),
    Function("sqrt", 0.5, 0.5),
    Function("reciprocal", 0.5, 0.5),
    Function("erfc", 1, 2, unfused=3),
    Function("erfinv", 1, 2),
    Function("asin", 1.5, 1),
    Function("acos", 1.5, 1),
    Function("atan", 1.5, 1),
    Function("sinh", 2, 2),
    Function("cosh", 1.5, 2),
    Function("asinh", 2, 2),
    Function("acosh", 2, 2),
    Function("atanh", 1, 2),
    Function("lgamma", 1, 5),
    Function("digamma", 1, None),
    Function("floor", 0, 0),
    Function("ceil", 0, 0),
    Function("trunc", 0, 0),
    Function("round", 0, 0),
    Function("abs", 0, 0),
    Function("neg", 0, 0),
    Function("sign", 0, 0),
    Function("pow", 1, 1, arity=2, focus="power"),
    Function("atan2", 2, 1, arity=2),
    Function("hypot", 1.5, 1, arity=2),
    Function("fmod", 0, 0, arity=2),
    Function("remainder", 0.5, None, arity=2),
    Function("floor_div", 0, None, arity=2),
    Function("trunc_div", 0, None, arity=2),
    Function("nextafter", 0, 0, arity=2),
    Function("copysign", 0, 0, arity=2),
)

UNFUSED = ("scalar",)
"""Instruction sets in which a product and a sum are two roundings."""

FUNCTIONS: Mapping[str, Function] = MappingProxyType({row.name: row for row in _ROWS})
