"""Numba's spelling of each scalar operation.

Arguments are names or literals, so a spelling may repeat them. Numba adds small integers as ``int64`` or
``uint64``, so every integer result is converted to its own type; floats of one type give that type. Floats
below 32 bits are computed as ``float32`` and rounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from litz_ir.dtypes import DType, compute_dtype, f64, i64
from litz_ir.errors import CodegenError
from litz_target_numba.spelling import bitcast, cast, numpy_type, rounded


@dataclass(frozen=True, slots=True)
class Spelling:
    """Expressions that compute an operation.

    ``text`` serves every dtype that has no spelling of its own; ``unsigned`` is ``integer`` where left out.
    ``{0}``, ``{1}`` are the arguments, ``{T}`` the type of the result, ``{bits}`` its width, ``{digits}`` the
    significant digits of a float, ``{dtype}`` its name. ``wide`` spellings compute floats in ``float64``,
    which are then rounded once.
    """

    text: str
    integer: str = ""
    unsigned: str = ""
    boolean: str = ""
    wide: bool = False

    def for_dtype(self, dtype: DType) -> str:
        """Return the spelling over arguments of ``dtype``."""
        if dtype.is_bool:
            return self.boolean or self.text
        if dtype.is_float:
            return self.text
        return (self.unsigned if dtype.kind == "uint" else "") or self.integer or self.text


_SIGN = "({0} > 0) - ({0} < 0)"
_MAGNITUDES = ", ".join(f"np.uint64(abs(np.int64({{{k}}})))" for k in (0, 1))
_INSIDE = "0 <= {1} < {bits}"
_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "mul_tf32": "*", "mul_f8": "*", "mul_f8_fast": "*",
    "div": "/", "bit_and": "&", "bit_or": "|", "bit_xor": "^",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_EXACT = "sqrt isnan isinf".split()
_WIDE = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "erf erfc lgamma"
).split()

SPELLINGS: Mapping[str, Spelling] = MappingProxyType(
    {
        **{name: Spelling(f"{{0}} {sign} {{1}}") for name, sign in _OPERATORS.items()},
        **{name: Spelling(f"math.{name}({{0}})") for name in _EXACT},
        **{name: Spelling(f"math.{name}({{0}})", wide=True) for name in _WIDE},
        **{name: Spelling(f"math.{name}({{0}}, {{1}})", wide=True) for name in ("hypot", "atan2")},
        **{name: Spelling(f"np.{name}({{0}})") for name in ("floor", "ceil", "trunc")},
        **{name: Spelling(f"np.{name}({{0}}, {{1}})") for name in ("fmin", "fmax")},
        **{name: Spelling(f"{name}({{0}})", wide=True) for name in ("erfinv", "digamma")},
        **{
            name: Spelling(f"{name}({{0}}, {{1}})", wide=True)
            for name in ("zeta", "gamma_series", "gamma_fraction")
        },
        "where": Spelling("{1} if {0} else {2}"),
        "fma": Spelling("fma({0}, {1}, {2})"),
        "neg": Spelling("-{0}"),
        "abs": Spelling("abs({0})"),
        "sign": Spelling("{T}(" + _SIGN + ")", integer=_SIGN),
        "signbit": Spelling("np.signbit({0})", integer="{0} < 0"),
        "copysign": Spelling("math.copysign({0}, {1})"),
        "nextafter": Spelling("math.nextafter({0}, {1})"),
        "reciprocal": Spelling("{T}(1) / {0}"),
        "floor_div": Spelling("floor_div({0}, {1})", "{0} // {1} if {1} != -1 else -{0}", "{0} // {1}"),
        "remainder": Spelling("remainder({0}, {1})", "{0} % {1}"),
        "trunc_div": Spelling("trunc_div({0}, {1})", unsigned="{0} // {1}"),
        "fmod": Spelling("np.fmod({0}, {1})", "fmod({0}, {1})", "{0} % {1}"),
        "gcd": Spelling(f"{{T}}(gcd({_MAGNITUDES}))", unsigned="gcd(np.uint64({0}), np.uint64({1}))"),
        "minimum": Spelling("minimum({0}, {1})", "min({0}, {1})", boolean="{0} & {1}"),
        "maximum": Spelling("maximum({0}, {1})", "max({0}, {1})", boolean="{0} | {1}"),
        "three_term": Spelling("three_term({0}, {1}, {2}, {3}, {4}, {5}, {6})"),
        "round": Spelling("np.rint({0})"),
        "rsqrt": Spelling("1 / math.sqrt({0})", wide=True),
        "pow": Spelling("math.pow({0}, {1})", "power({0}, {1})", wide=True),
        "sigmoid": Spelling("1 / (1 + math.exp(-{0}))", wide=True),
        "bit_not": Spelling("~{0}", boolean="not {0}"),
        "shift_left": Spelling("{0} << {1} if " + _INSIDE + " else {T}(0)"),
        "shift_right": Spelling(
            "{0} >> ({1} if " + _INSIDE + " else {bits} - 1)",
            unsigned="{0} >> {1} if " + _INSIDE + " else {T}(0)",
        ),
        "random_bits": Spelling("{T}(random_bits({0}, {1}, {bits}))"),
        "random_uniform": Spelling("random_uniform({0}, {1}, {digits})", wide=True),
        "random_normal": Spelling("random_normal({0}, {1}, {bits})", wide=True),
    }
)
"""All rows of ``litz_ir.scalar.OPS`` but ``cast`` and ``bitcast``, which take two dtypes."""
_OF_TWO_DTYPES = MappingProxyType({"cast": cast, "bitcast": bitcast})


def operation(name: str, args: Sequence[str], source: DType, result: DType) -> str:
    """Return an operation whose last argument is of dtype ``source``; raises :class:`CodegenError`."""
    if name in _OF_TWO_DTYPES:
        return _OF_TWO_DTYPES[name](args[0], source, result)
    if name == "nextafter" and result.is_low_precision:
        return f"next_{result}({', '.join(args)})"
    row = SPELLINGS.get(name)
    if row is None:
        raise CodegenError(f"{name} has no spelling in Numba", hint="run the operation as a call instead")
    if row.wide and source.is_float and source != f64:
        args = [f"np.float64({arg})" for arg in args]
    text = row.for_dtype(source).format(
        *args,
        T=numpy_type(result),
        bits=1 if result.is_bool else result.bits,
        digits=result.mantissa + 1,
    )
    converted = (result.is_integer and result != i64) or (row.wide and compute_dtype(result) != f64)
    return rounded(f"{numpy_type(result)}({text})" if converted and not result.is_bool else text, result)
