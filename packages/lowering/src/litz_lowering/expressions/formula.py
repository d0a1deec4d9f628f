"""Scalar formulas with Python's operators; Python numbers take the dtype of the other operand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from litz_ir.dtypes import DType, b1
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Term

Number = int | float | bool
Operand = "Num | Number"


@dataclass(frozen=True, slots=True, eq=False)
class Num:
    """A body with arithmetic. Both operands have one dtype; a Python number is a literal of it.

    Comparisons give ``b1`` values, on which ``&``, ``|`` and ``~`` work.
    """

    expr: Expr

    @property
    def dtype(self) -> DType:
        return self.expr.dtype

    def like(self, other: Num | Number) -> Num:
        """``other`` in this value's dtype; a Python number becomes a literal."""
        return other if isinstance(other, Num) else Num(build.const(other, self.dtype))

    def to(self, dtype: DType) -> Num:
        """Cast to ``dtype``."""
        return Num(build.cast(self.expr, dtype))

    def _with(self, name: str, other: Num | Number) -> Num:
        return Num(build.op(name, self.expr, self.like(other).expr))

    def _after(self, name: str, other: Num | Number) -> Num:
        return Num(build.op(name, self.like(other).expr, self.expr))

    def __add__(self, other: Num | Number) -> Num:
        return self._with("add", other)

    def __radd__(self, other: Number) -> Num:
        return self._after("add", other)

    def __sub__(self, other: Num | Number) -> Num:
        return self._with("sub", other)

    def __rsub__(self, other: Number) -> Num:
        return self._after("sub", other)

    def __mul__(self, other: Num | Number) -> Num:
        return self._with("mul", other)

    def __rmul__(self, other: Number) -> Num:
        return self._after("mul", other)

    def __truediv__(self, other: Num | Number) -> Num:
        return self._with("div", other)

    def __rtruediv__(self, other: Number) -> Num:
        return self._after("div", other)

    def __neg__(self) -> Num:
        return Num(build.op("neg", self.expr))

    def __lt__(self, other: Num | Number) -> Num:
        return self._with("lt", other)

    def __le__(self, other: Num | Number) -> Num:
        return self._with("le", other)

    def __gt__(self, other: Num | Number) -> Num:
        return self._with("gt", other)

    def __ge__(self, other: Num | Number) -> Num:
        return self._with("ge", other)

    def __and__(self, other: Num | Number) -> Num:
        return self._with("bit_and", other)

    def __or__(self, other: Num | Number) -> Num:
        return self._with("bit_or", other)

    def __xor__(self, other: Num | Number) -> Num:
        return self._with("bit_xor", other)

    def __invert__(self) -> Num:
        return Num(build.op("bit_not", self.expr))

    def eq(self, other: Num | Number) -> Num:
        """Equality as a value (``==`` compares the objects)."""
        return self._with("eq", other)

    def ne(self, other: Num | Number) -> Num:
        """Inequality as a value."""
        return self._with("ne", other)


def unary(name: str) -> Callable[[Num], Num]:
    """Scalar operation ``name`` as a function of one value."""
    return lambda x: Num(build.op(name, x.expr))


def binary(name: str) -> Callable[[Num | Number, Num | Number], Num]:
    """Scalar operation ``name`` as a function of two operands, one of which may be a Python number."""

    def apply(a: Num | Number, b: Num | Number) -> Num:
        if isinstance(a, Num):
            return Num(build.op(name, a.expr, a.like(b).expr))
        assert isinstance(b, Num), "one operand is a value"
        return Num(build.op(name, b.like(a).expr, b.expr))

    return apply


def where(cond: Num, a: Num | Number, b: Num | Number) -> Num:
    """``a`` where ``cond`` is true, else ``b``."""
    if isinstance(a, Num):
        return Num(build.where(cond.expr, a.expr, a.like(b).expr))
    assert isinstance(b, Num), "one operand is a value"
    return Num(build.where(cond.expr, b.like(a).expr, b.expr))


def extreme(dtype: DType, *, largest: bool) -> int | float:
    """Largest or smallest value of a dtype, infinities included."""
    if dtype.is_bool:
        return int(largest)
    if dtype.is_float:
        return math.inf if largest else -math.inf
    low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    return low + (1 << dtype.bits) - 1 if largest else low


def false(_: Num) -> Num:
    """Constant false."""
    return Num(build.const(False, b1))


def index(term: int | Term) -> Num:
    """Value of an index term."""
    return Num(build.index(term))


def fma(a: Num, b: Num | Number, c: Num | Number) -> Num:
    """``a * b + c``, rounded once."""
    return Num(build.op("fma", a.expr, a.like(b).expr, a.like(c).expr))


def clip(x: Num, low: Num | Number | None = None, high: Num | Number | None = None) -> Num:
    """Clamp ``x`` to two bounds; NaN stays, as does the sign of a zero that equals a bound given as a number."""
    constants = [bound for bound in (low, high) if bound is not None and not isinstance(bound, Num)]
    if any(math.isnan(constant) for constant in constants):
        return x.like(math.nan)
    if low is not None:
        x = maximum(x, low) if isinstance(low, Num) else where(x < low, low, x)
    if high is not None:
        x = minimum(x, high) if isinstance(high, Num) else where(x > high, high, x)
    return x


exp, exp2, expm1 = unary("exp"), unary("exp2"), unary("expm1")
sin, cos, tan = unary("sin"), unary("cos"), unary("tan")
log, log2, log1p = unary("log"), unary("log2"), unary("log1p")
sqrt, rsqrt, reciprocal = unary("sqrt"), unary("rsqrt"), unary("reciprocal")
tanh, erf, sigmoid = unary("tanh"), unary("erf"), unary("sigmoid")
floor, ceil, trunc, rint = unary("floor"), unary("ceil"), unary("trunc"), unary("round")
absolute, sign, isnan, isinf = unary("abs"), unary("sign"), unary("isnan"), unary("isinf")
fmin, fmax = binary("fmin"), binary("fmax")
minimum, maximum, remainder = binary("minimum"), binary("maximum"), binary("remainder")
power, floor_div, remainder, fmod = binary("pow"), binary("floor_div"), binary("remainder"), binary("fmod")
