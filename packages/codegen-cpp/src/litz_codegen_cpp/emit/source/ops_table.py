"""The C++ spelling of each scalar operation: one row per row of ``litz_ir.scalar.ops_table.OPS``.

Most spellings serve vectors and scalars alike, since the headers overload them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from litz_ir.errors import ConfigError
from litz_ir.scalar import OPS


@dataclass(frozen=True, slots=True)
class Spelling:
    """The C++ templates of one operation; arguments are ``{0}``, ``{1}`` and so on.

    ``{T}`` stands for the register type of the result, ``{M}`` for its type in memory.
    """

    text: str
    """The template for floats, and for dtypes without a template of their own."""
    header: str = ""
    """The header that declares the functions used."""
    integer: str = ""
    """The template for integers."""
    mask: str = ""
    """The template for vectors of ``b1``."""
    boolean: str = ""
    """The template for scalars of ``b1``."""
    narrow: str = ""
    """The template for low-precision floats, whose result is rounded; ``{N}`` is the dtype's name."""
    exact: bool = False
    """True where results need no rounding to a low-precision float."""


def _call(name: str, header: str, arity: int = 1, *, exact: bool = False) -> Spelling:
    arguments = ", ".join(f"{{{k}}}" for k in range(arity))
    return Spelling(f"{name}({arguments})", header, exact=exact)


def _operator(sign: str, wrapping: str) -> Spelling:
    return Spelling(f"{{0}} {sign} {{1}}", "arithmetic", integer=f"{wrapping}({{0}}, {{1}})")


def _bits(sign: str) -> Spelling:
    return Spelling(f"{{0}} {sign} {{1}}", exact=True)


def _divide(name: str) -> Spelling:
    text = f"{name}({{0}}, {{1}})"
    return Spelling(text, "math_divide", integer=text)


def _compare(name: str, mask: str = "", boolean: str = "") -> Spelling:
    return Spelling(f"{name}({{0}}, {{1}})", "lanes", mask=mask, boolean=boolean, exact=True)


def _extreme(name: str, sign: str) -> Spelling:
    return Spelling(
        f"{name}({{0}}, {{1}})",
        "arithmetic",
        mask=f"{{0}} {sign} {{1}}",
        boolean=f"{{0}} {sign} {{1}}",
        exact=True,
    )


def _random(name: str) -> Spelling:
    return Spelling(f"{name}<{{M}}>({{0}}, {{1}})", "philox")


_TABLE = {
    # conversions are written by litz_codegen_cpp.emit.source.casts, from the two dtypes
    "cast": Spelling("convert<{T}>({0})", "lanes"),
    "bitcast": Spelling("bits_as<{T}>({0})", "types", exact=True),
    "where": Spelling("select({0}, {1}, {2})", "lanes", exact=True),
    # arithmetic
    "add": _operator("+", "add_wrapping"),
    "sub": _operator("-", "sub_wrapping"),
    "mul": _operator("*", "mul_wrapping"),
    "mul_tf32": Spelling("{0} * {1}", "arithmetic"),
    "mul_f8": Spelling("{0} * {1}", "arithmetic"),
    "mul_f8_fast": Spelling("{0} * {1}", "arithmetic"),
    "fma": _call("fma", "float_ops", 3),
    "div": Spelling("{0} / {1}"),
    "neg": _call("neg", "arithmetic", exact=True),
    "abs": _call("abs", "arithmetic", exact=True),
    "sign": _call("sign", "arithmetic", exact=True),
    "reciprocal": _call("reciprocal", "float_ops"),
    "floor_div": _divide("floor_div"),
    "remainder": _divide("remainder"),
    "trunc_div": _divide("trunc_div"),
    "fmod": _divide("fmod"),
    "gcd": _call("gcd", "math_power", 2),
    "minimum": _extreme("minimum", "&"),
    "maximum": _extreme("maximum", "|"),
    "fmin": _call("fmin", "arithmetic", 2, exact=True),
    "fmax": _call("fmax", "arithmetic", 2, exact=True),
    # rounding
    "floor": _call("floor", "float_ops"),
    "ceil": _call("ceil", "float_ops"),
    "trunc": _call("trunc", "float_ops"),
    "round": _call("round", "float_ops"),
    # powers and roots
    "sqrt": _call("sqrt", "float_ops"),
    "rsqrt": _call("rsqrt", "float_ops"),
    "pow": _call("pow", "math_power", 2),
    "hypot": _call("hypot", "math_trig", 2),
    # exponentials and logarithms
    "exp": _call("exp", "math_exp"),
    "exp2": _call("exp2", "math_exp"),
    "expm1": _call("expm1", "math_exp"),
    "log": _call("log", "math_log"),
    "log2": _call("log2", "math_log"),
    "log10": _call("log10", "math_log"),
    "log1p": _call("log1p", "math_log"),
    "sigmoid": _call("sigmoid", "math_exp"),
    # trigonometry
    "sin": _call("sin", "math_trig"),
    "cos": _call("cos", "math_trig"),
    "tan": _call("tan", "math_trig"),
    "asin": _call("asin", "math_trig"),
    "acos": _call("acos", "math_trig"),
    "atan": _call("atan", "math_trig"),
    "atan2": _call("atan2", "math_trig", 2),
    "sinh": _call("sinh", "math_hyperbolic"),
    "cosh": _call("cosh", "math_hyperbolic"),
    "tanh": _call("tanh", "math_exp"),
    "asinh": _call("asinh", "math_hyperbolic"),
    "acosh": _call("acosh", "math_hyperbolic"),
    "atanh": _call("atanh", "math_hyperbolic"),
    # special functions
    "erf": _call("erf", "math_erf"),
    "erfc": _call("erfc", "math_erf"),
    "erfinv": _call("erfinv", "math_erf"),
    "lgamma": _call("lgamma", "math_gamma"),
    "digamma": _call("digamma", "math_gamma"),
    "zeta": _call("zeta", "math_gamma", 2),
    "gamma_series": _call("gamma_series", "math_gamma", 2),
    "gamma_fraction": _call("gamma_fraction", "math_gamma", 2),
    "three_term": _call("three_term", "math_recurrence", 7),
    # bits
    "copysign": _call("copysign", "float_ops", 2, exact=True),
    "nextafter": Spelling("nextafter({0}, {1})", "math_power", narrow="nextafter_{N}({0}, {1})"),
    "bit_and": _bits("&"),
    "bit_or": _bits("|"),
    "bit_xor": _bits("^"),
    "bit_not": Spelling("~{0}", boolean="!{0}", exact=True),
    "shift_left": _call("shift_left", "arithmetic", 2),
    "shift_right": _call("shift_right", "arithmetic", 2),
    # comparisons; a mask's true lanes are -1, so they are ordered by bit operations
    "eq": _compare("eq"),
    "ne": _compare("ne"),
    "lt": _compare("lt", "~{0} & {1}", "!{0} & {1}"),
    "le": _compare("le", "~{0} | {1}", "!{0} | {1}"),
    "gt": _compare("gt", "{0} & ~{1}", "{0} & !{1}"),
    "ge": _compare("ge", "{0} | ~{1}", "{0} | !{1}"),
    "isnan": _call("isnan", "arithmetic"),
    "isinf": _call("isinf", "arithmetic"),
    "signbit": _call("signbit", "arithmetic"),
    # random numbers
    "random_uniform": _random("random_uniform"),
    "random_normal": _random("random_normal"),
    "random_bits": _random("random_bits"),
}

SPELLINGS: Mapping[str, Spelling] = MappingProxyType(_TABLE)

_OWN = frozenset(SPELLINGS)


def register_spelling(operation: str, spelling: Spelling) -> None:
    """Add the C++ spelling of a scalar operation that another package registered.

    Its text becomes part of kernels as it is. Registering the same spelling again changes nothing. Raises
    ``ConfigError`` for an operation that has another spelling, or that no package registered.
    """
    if SPELLINGS.get(operation) == spelling:
        return
    if operation in SPELLINGS or operation not in OPS:
        why = "has a spelling" if operation in SPELLINGS else "is no scalar operation"
        raise ConfigError(f"{operation} {why}", hint="register the operation by litz_ir.extension first")
    _TABLE[operation] = spelling


def spelled_operations() -> frozenset[str] | None:
    """Return the operations that kernels compute, for their capabilities; ``None`` for litz's own."""
    return None if SPELLINGS.keys() == _OWN else frozenset(SPELLINGS)
