"""OpenCL spellings of types, literals and each scalar operation.

Arguments are names or literals, so a spelling may repeat them; the result is assigned to a variable of its
own type, which converts it. Functions and divisions of ``float`` compute in ``double`` and are rounded once,
since OpenCL lets devices compute them in ``float`` with errors of several units. Integers wrap in unsigned
arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from litz_ir.dtypes import DType, b1, extreme_value, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from litz_ir.errors import CodegenError

TYPES: Mapping[DType, str] = MappingProxyType(
    {
        **{f64: "double", f32: "float", b1: "bool"},
        **{i64: "long", i32: "int", i16: "short", i8: "char"},
        **{u64: "ulong", u32: "uint", u16: "ushort", u8: "uchar"},
    }
)
"""OpenCL type of a value of each dtype that kernels compute with."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """``text`` serves every dtype that has no spelling of its own; ``unsigned`` is ``integer`` where left
    out.

    ``{0}``, ``{1}`` are the arguments, ``{T}`` and ``{S}`` the types of the result and of the last argument,
    ``{bits}`` the result's width, ``{W}`` the unsigned type in which its integers wrap, ``{D}`` a cast of
    ``float`` to ``double``, and ``{f}`` the suffix of helpers over ``float``.
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


_DIVIDE, _REST = "{1} == 0 ? 0 : {0} / {1}", "{1} == 0 ? 0 : {0} % {1}"
_POWER = (
    "{1} >= 0 ? (long)power({0}, {1}) : {0} == 1 ? 1 : {0} != -1 ? 0 : {1} % 2 == 0 ? 1 : -1"  # of integers
)
_MAGNITUDES = [f"{{{k}}} < 0 ? 0 - (ulong){{{k}}} : (ulong){{{k}}}" for k in (0, 1)]
_INSIDE = "{1} >= 0 && {1} < {bits}"
_WRAPPING = {"add": "+", "sub": "-", "mul": "*"}
_OPERATORS = {
    "mul_tf32": "*", "mul_f8": "*", "mul_f8_fast": "*", "bit_and": "&", "bit_or": "|", "bit_xor": "^",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_EXACT = "floor ceil trunc isinf".split()
_EXACT_OF_TWO = "fmin fmax copysign nextafter".split()
_CALLS = (
    "sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "erf erfc erfinv lgamma digamma"
).split()
_CALLS_OF_TWO = "hypot atan2 zeta gamma_series gamma_fraction".split()

SPELLINGS: Mapping[str, Spelling] = MappingProxyType(
    {
        **{
            name: Spelling(f"{{0}} {sign} {{1}}", f"({{W}}){{0}} {sign} ({{W}}){{1}}")
            for name, sign in _WRAPPING.items()
        },
        **{name: Spelling(f"{{0}} {sign} {{1}}") for name, sign in _OPERATORS.items()},
        **{name: Spelling(f"{name}({{0}})") for name in _EXACT},
        **{name: Spelling(f"{name}({{0}}, {{1}})") for name in _EXACT_OF_TWO},
        **{name: Spelling(f"{name}({{D}}{{0}})") for name in _CALLS},
        **{name: Spelling(f"{name}({{D}}{{0}}, {{D}}{{1}})") for name in _CALLS_OF_TWO},
        "bitcast": Spelling("as_{T}(({S}){0})"),
        "where": Spelling("{0} ? {1} : {2}"),
        "fma": Spelling("fma({0}, {1}, {2})"),
        "div": Spelling("{D}{0} / {1}"),
        "reciprocal": Spelling("1 / {D}{0}"),
        "neg": Spelling("-{0}", integer="0 - ({W}){0}"),
        "abs": Spelling("fabs({0})", integer="{0} < 0 ? 0 - ({W}){0} : ({W}){0}", unsigned="{0}"),
        "sign": Spelling("({0} > 0) - ({0} < 0)"),
        "floor_div": Spelling("floor_div_f({0}, {1})", "floor_div_i({0}, {1})", _DIVIDE),
        "remainder": Spelling("remainder_f({0}, {1})", "remainder_i({0}, {1})", _REST),
        "trunc_div": Spelling("{1} == -1 ? 0 - ({W}){0} : " + _DIVIDE, unsigned=_DIVIDE),
        "fmod": Spelling("fmod({D}{0}, {D}{1})", "{1} == -1 ? 0 : " + _REST, _REST),
        "minimum": Spelling("{0} < {1} || {0} != {0} ? {0} : {1}"),
        "maximum": Spelling("{0} > {1} || {0} != {0} ? {0} : {1}"),
        "gcd": Spelling("gcd(" + ", ".join(_MAGNITUDES) + ")", unsigned="gcd({0}, {1})"),
        "three_term": Spelling("three_term{f}({0}, {1}, {2}, {3}, {4}, {5}, {6})"),
        "round": Spelling("rint({0})"),
        "rsqrt": Spelling("1 / sqrt({D}{0})"),
        "pow": Spelling("pow({D}{0}, {D}{1})", _POWER, "power({0}, {1})"),
        "sigmoid": Spelling("1 / (1 + exp(-{D}{0}))"),
        "bit_not": Spelling("~{0}", boolean="!{0}"),
        "shift_left": Spelling(_INSIDE + " ? (ulong){0} << {1} : 0"),
        "shift_right": Spelling(_INSIDE + " ? {0} >> {1} : -({0} < 0)"),
        "isnan": Spelling("{0} != {0}"),
        "signbit": Spelling("signbit({0})", integer="{0} < 0"),
        "random_bits": Spelling("random_bits({0}, {1})"),
        "random_uniform": Spelling("random_uniform{f}({0}, {1})"),
        "random_normal": Spelling("random_normal{f}({0}, {1})"),
    }
)
"""All rows of ``litz_ir.scalar.OPS`` but ``cast``, which takes two dtypes."""


def operation(name: str, args: list[str], source: DType, result: DType) -> str:
    """Return an operation whose last argument is of dtype ``source``."""
    if name == "cast" or (name == "bitcast" and (source.is_bool or result.is_bool)):
        return cast(args[0], source, result)
    words = {
        "T": cl_type(result),
        "S": cl_type(source),
        "W": "ulong" if result.bits == 64 else "uint",
        "D": "(double)" if source == f32 else "",
        "f": "f" if result == f32 else "",
    }
    text = SPELLINGS[name].for_dtype(source).format(*args, **words, bits=result.bits)
    return f"{text} & 1" if name == "random_bits" and result.is_bool else text


def cast(text: str, source: DType, result: DType) -> str:
    """Return ``text`` as ``result``, where assigning it to a variable of that type is not enough."""
    if result.is_bool:
        return f"{text} != 0"
    if source.is_float and result.is_integer:
        through = result.name if result.bits == 64 else "i32" if result.kind == "int" else "i64"
        return f"to_{through}({text})"
    return text


def cl_type(dtype: DType) -> str:
    """Return the OpenCL type of a value; raises :class:`CodegenError` for floats below 32 bits."""
    if dtype not in TYPES:
        raise CodegenError(f"OpenCL C has no type for {dtype}", hint="cast to f32 outside of the kernel")
    return TYPES[dtype]


def literal(value: int | float | bool, dtype: DType) -> str:
    """Return a constant."""
    if dtype.is_bool:
        return "true" if value else "false"
    if dtype.is_integer:
        if value == -(2**63):
            return "-LONG_MAX - 1"
        return str(value) + ("" if dtype.bits < 64 else "L" if dtype.kind == "int" else "UL")
    with np.errstate(over="ignore"):
        text = str(np.float32(value)) if dtype == f32 else repr(float(value))
    if np.isfinite(float(text)):
        return text + "f" * (dtype == f32)
    text = text.replace("nan", "NAN").replace("inf", "INFINITY")
    return text if dtype == f32 else f"(double){text}"


def extreme(dtype: DType, largest: bool) -> str:
    """Return the largest or the smallest value of a dtype; an infinity for floats."""
    return literal(extreme_value(dtype, largest=largest), dtype)
