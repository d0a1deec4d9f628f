"""C spellings of types, literals and each scalar operation.

Arguments are names or literals, so a spelling may repeat them; the result is assigned to a variable of its own type,
which converts it. Functions of ``math.h`` compute in ``double``: a ``float`` result is then rounded once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from litz_ir.dtypes import DType, f32
from litz_ir.errors import CodegenError


@dataclass(frozen=True, slots=True)
class Spelling:
    """``text`` serves every dtype that has no spelling of its own; ``unsigned`` is ``integer`` where left out.

    ``{0}``, ``{1}`` are the arguments, ``{T}`` and ``{S}`` the types of the result and of the last argument, ``{bits}``
    the result's width, ``{f}`` the suffix of functions over ``float``.
    """

    text: str
    integer: str = ""
    unsigned: str = ""
    boolean: str = ""

    def for_dtype(self, dtype: DType) -> str:
        """Return the spelling over arguments of ``dtype``."""
        if dtype.is_bool:
            return self.boolean or self.text
        if dtype.is_float:
            return self.text
        return (self.unsigned if dtype.kind == "uint" else "") or self.integer or self.text


_BITCAST = Spelling("(union {{ {S} from; {T} to; }}){{ {0} }}.to")
_DIVIDE, _REST = "{1} == 0 ? 0 : {0} / {1}", "{1} == 0 ? 0 : {0} % {1}"
_POWER = "{1} >= 0 ? (int64_t)power({0}, {1}) : {0} == 1 ? 1 : {0} != -1 ? 0 : {1} % 2 == 0 ? 1 : -1"  # of integers
_MAGNITUDES = [f"{{{k}}} < 0 ? -(uint64_t){{{k}}} : (uint64_t){{{k}}}" for k in (0, 1)]
_INSIDE = "{1} >= 0 && {1} < {bits}"
_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "mul_tf32": "*", "mul_f8": "*", "mul_f8_fast": "*",
    "div": "/", "bit_and": "&", "bit_or": "|", "bit_xor": "^",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_CALLS = (
    "floor ceil trunc sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh "
    "asinh acosh atanh erf erfc erfinv lgamma digamma"
).split()
_CALLS_OF_TWO = "fmin fmax hypot atan2 copysign".split()

SPELLINGS: Mapping[str, Spelling] = MappingProxyType(
    {
        **{name: Spelling(f"{{0}} {sign} {{1}}") for name, sign in _OPERATORS.items()},
        **{name: Spelling(f"{name}({{0}})") for name in _CALLS},
        **{name: Spelling(f"{name}({{0}}, {{1}})") for name in _CALLS_OF_TWO},
        "bitcast": _BITCAST,
        "where": Spelling("{0} ? {1} : {2}"),
        "fma": Spelling("fma{f}({0}, {1}, {2})"),
        "neg": Spelling("-{0}"),
        "abs": Spelling("fabs({0})", integer="{0} < 0 ? -{0} : {0}"),
        "sign": Spelling("({0} > 0) - ({0} < 0)"),
        "reciprocal": Spelling("1 / {0}"),
        "floor_div": Spelling("floor_div_f({0}, {1})", "floor_div_i({0}, {1})", _DIVIDE),
        "remainder": Spelling("remainder_f({0}, {1})", "remainder_i({0}, {1})", _REST),
        "trunc_div": Spelling("{1} == -1 ? -{0} : " + _DIVIDE, unsigned=_DIVIDE),
        "fmod": Spelling("fmod({0}, {1})", "{1} == -1 ? 0 : " + _REST, _REST),
        "minimum": Spelling("{0} < {1} || {0} != {0} ? {0} : {1}"),
        "maximum": Spelling("{0} > {1} || {0} != {0} ? {0} : {1}"),
        "gcd": Spelling("gcd(" + ", ".join(_MAGNITUDES) + ")", unsigned="gcd({0}, {1})"),
        "zeta": Spelling("zeta({0}, {1})"),
        "gamma_series": Spelling("gamma_series({0}, {1})"),
        "gamma_fraction": Spelling("gamma_fraction({0}, {1})"),
        "three_term": Spelling("three_term{f}({0}, {1}, {2}, {3}, {4}, {5}, {6})"),
        "round": Spelling("rint({0})"),
        "rsqrt": Spelling("1 / sqrt({0})"),
        "pow": Spelling("pow({0}, {1})", _POWER, "power({0}, {1})"),
        "sigmoid": Spelling("1 / (1 + exp(-(double){0}))"),
        "nextafter": Spelling("nextafter{f}({0}, {1})"),
        "bit_not": Spelling("~{0}", boolean="!{0}"),
        "shift_left": Spelling(_INSIDE + " ? (uint64_t){0} << {1} : 0"),
        "shift_right": Spelling(_INSIDE + " ? {0} >> {1} : -({0} < 0)"),
        "isnan": Spelling("{0} != {0}"),
        "isinf": Spelling("isinf({0})"),
        "signbit": Spelling("signbit({0})", integer="{0} < 0"),
    }
)
"""All rows of ``litz_ir.scalar.OPS`` but ``cast``, which takes two dtypes, and random numbers."""


def operation(name: str, args: list[str], source: DType, result: DType) -> str:
    """Return an operation whose last argument is of dtype ``source``; raises :class:`CodegenError`."""
    if name == "cast" or (name == "bitcast" and result.is_bool):
        return cast(args[0], source, result)
    row = SPELLINGS.get(name)
    if row is None:
        raise CodegenError(f"{name} has no spelling in C", hint="run the operation as a call instead")
    suffix = "f" if result == f32 else ""
    types = {"T": c_type(result), "S": c_type(source)}
    return row.for_dtype(source).format(*args, **types, bits=result.bits, f=suffix)


def cast(text: str, source: DType, result: DType) -> str:
    """Return ``text`` as ``result``, where assigning it to a variable of that type is not enough."""
    if result.is_bool:
        return f"{text} != 0"
    if source.is_float and result.is_integer:
        through = result.name if result.bits == 64 else "i32" if result.kind == "int" else "i64"
        return f"to_{through}({text})"
    return text


def c_type(dtype: DType) -> str:
    """Return the C type of a value, in registers as in memory; raises :class:`CodegenError` for narrow floats."""
    if dtype.is_low_precision:
        raise CodegenError(f"C has no type for {dtype}", hint="cast to f32 outside of the kernel")
    if dtype.is_float:
        return "float" if dtype == f32 else "double"
    return "bool" if dtype.is_bool else f"{'u' * (dtype.kind == 'uint')}int{dtype.bits}_t"


def literal(value: int | float | bool, dtype: DType) -> str:
    """Return a constant, in parentheses where it is negative."""
    if dtype.is_bool:
        return "true" if value else "false"
    if dtype.is_float:
        with np.errstate(over="ignore"):
            text = str(np.float32(value)) + "f" if dtype == f32 else repr(float(value))
        text = text.replace("nanf", "nan").replace("inff", "inf")
        text = text.replace("nan", "NAN").replace("inf", "INFINITY")
    elif value == -(2**63):
        text = "-INT64_MAX - 1"
    else:
        text = str(value) if dtype.bits < 64 else f"{dtype.kind.upper()}64_C({value})"
    return f"({text})" if value < 0 or text.startswith("-") else text


def extreme(dtype: DType, largest: bool) -> str:
    """Return the largest or the smallest value of a dtype."""
    if dtype.is_float:
        return "INFINITY" if largest else "-INFINITY"
    if dtype.is_bool:
        return "true" if largest else "false"
    if dtype.kind == "uint" and not largest:
        return "0"
    return f"{dtype.kind.upper()}{dtype.bits}_{'MAX' if largest else 'MIN'}"
