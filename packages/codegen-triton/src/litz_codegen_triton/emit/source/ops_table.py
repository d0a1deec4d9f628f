"""Triton spellings of scalar operations, one row for each of ``litz_ir.scalar.OPS``.

A kernel has two forms. The *compiled* form runs on a GPU and may call libdevice. The *interpreted* form runs in
Triton's interpreter, which has no libdevice and whose conversions to low-precision floats truncate. Most spellings are
those of both forms; the others name a libdevice function, and a function of litz's own for the interpreter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from litz_codegen_triton.dtypes import COMPILED, ROWS, TritonDType
from litz_ir.dtypes import DType, compute_dtype, i8, i16, i32, u8, u16, u32
from litz_ir.errors import CodegenError, ConfigError
from litz_ir.scalar import OPS

Form = Literal["compiled", "interpreted"]


@dataclass(frozen=True, slots=True)
class Spelling:
    """The spelling of one operation for one dtype."""

    text: str
    """Template with the arguments, names or literals, at ``{0}``, ``{1}`` and so on."""

    libdevice: str = ""
    """libdevice function to call instead of ``text`` in the compiled form."""

    typed: bool = False
    """True where literal arguments have to be tensors."""

    exact: bool = False
    """True where a low-precision result, computed in ``f32``, is representable without rounding."""

    def in_form(self, form: Form) -> str:
        """Return the template for a form of kernel."""
        if self.libdevice and form == "compiled":
            arguments = ", ".join(f"{{{k}}}" for k in range(3) if f"{{{k}}}" in self.text)
            return f"libdevice.{self.libdevice}({arguments})"
        return self.text

    @property
    def wants_tensors(self) -> bool:
        """True where a literal argument has to be a tensor of its dtype."""
        return self.typed or bool(self.libdevice) or "litz_" in self.text


def triton_type(dtype: DType) -> str:
    """Return the type in which values of ``dtype`` are computed; low-precision floats are computed in ``float32``."""
    return "tl.int1" if dtype.is_bool else COMPILED[compute_dtype(dtype)].stored


def row_of(dtype: DType, form: Form) -> TritonDType:
    """Return the row of a dtype in a form of kernel. Raises ``CodegenError`` for one that Triton kernels do not
    support."""
    found = ROWS[form].get(dtype)
    if found is None:
        raise CodegenError(
            f"Triton kernels do not support {dtype}",
            hint="cast it to another dtype before it reaches a kernel",
        )
    return found


def pointer_type(dtype: DType, form: Form = "compiled") -> str:
    """Return the element type of a pointer in a kernel's signature. Raises ``CodegenError`` as :func:`row_of` does."""
    return row_of(dtype, form).pointer


_BOTH_NAN = "tl.{}({{0}}, {{1}}, propagate_nan=tl.PropagateNan.ALL)"
_AS_INT = "{{0}}.to(tl.int32) {} {{1}}.to(tl.int32)"

_Rows = Mapping[str, Spelling]
"""Spellings of one operation: by name of dtype, else by kind of dtype, else under the empty string."""


def _all(text: str, typed: bool = False, exact: bool = False) -> _Rows:
    return {"": Spelling(text, typed=typed, exact=exact)}


def _device(name: str, arguments: int = 1) -> _Rows:
    """Spell an operation as a libdevice function, and in the interpreter as litz's function of the same name."""
    return {"": Spelling(f"litz_{name}({', '.join(f'{{{k}}}' for k in range(arguments))})", name)}


def _compare(sign: str) -> _Rows:
    return {"bool": Spelling(_AS_INT.format(sign), typed=True), "": Spelling(f"{{0}} {sign} {{1}}")}


def _extremum(name: str, on_bools: str) -> _Rows:
    return {
        "float": Spelling(_BOTH_NAN.format(name), exact=True),
        "bool": Spelling(f"{{0}} {on_bools} {{1}}"),
        "": Spelling(f"tl.{name}({{0}}, {{1}})"),
    }


def _nextafter() -> _Rows:
    half = "litz_nextafter({0}.to(tl.float16), {1}.to(tl.float16), tl.int16, 1).to(tl.float32)"
    return {
        "f64": Spelling("litz_nextafter({0}, {1}, tl.int64, 1)"),
        "f32": Spelling("litz_nextafter({0}, {1}, tl.int32, 1)"),
        "bf16": Spelling("litz_nextafter({0}, {1}, tl.int32, 65536)", exact=True),
        "f16": Spelling(half, exact=True),
    }


_TABLE: dict[str, _Rows] = {
    "where": _all("tl.where({0}, {1}, {2})", exact=True),
    "add": _all("{0} + {1}"),
    "sub": _all("{0} - {1}"),
    "mul": _all("{0} * {1}"),
    "mul_tf32": _all("{0} * {1}"),
    "mul_f8": _all("{0} * {1}"),
    "mul_f8_fast": _all("{0} * {1}"),
    "fma": _all("tl.fma({0}, {1}, {2})"),
    # "/" and tl.sqrt are approximate in f32
    "div": {"f64": Spelling("{0} / {1}"), "": Spelling("tl.div_rn({0}, {1})")},
    "reciprocal": {"f64": Spelling("1.0 / {0}"), "": Spelling("tl.div_rn(1.0, {0})")},
    "sqrt": {"f64": Spelling("tl.sqrt({0})", typed=True), "": Spelling("tl.sqrt_rn({0})", typed=True)},
    "rsqrt": _all("tl.rsqrt({0})", typed=True),
    # Triton's unary minus is 0 - x, which loses the sign of zero
    "neg": {"float": Spelling("{0} * -1.0", exact=True), "": Spelling("-{0}")},
    "abs": {"uint": Spelling("{0}"), "": Spelling("tl.abs({0})", typed=True, exact=True)},
    "sign": {"uint": Spelling("litz_sign({0})"), "": Spelling("litz_sign({0})", exact=True)},
    "floor_div": {"float": Spelling("litz_floor_div({0}, {1})"), "int": Spelling("litz_int_floor_div({0}, {1})"),
                  "uint": Spelling("{0} // {1}")},
    "remainder": {"float": Spelling("litz_remainder({0}, {1})"), "int": Spelling("litz_int_remainder({0}, {1})"),
                  "uint": Spelling("{0} % {1}")},
    "trunc_div": _all("{0} // {1}"),
    "fmod": {"float": Spelling("litz_fmod({0}, {1})", "fmod", exact=True), "": Spelling("{0} % {1}")},
    "gcd": {"uint": Spelling("litz_gcd({0}, {1})"), "": Spelling("litz_gcd(tl.abs({0}), tl.abs({1}))", typed=True)},
    "minimum": _extremum("minimum", "&"),
    "maximum": _extremum("maximum", "|"),
    "fmin": _all("litz_fmin({0}, {1})", exact=True),
    "fmax": _all("litz_fmax({0}, {1})", exact=True),
    "floor": _all("tl.floor({0})", typed=True),
    "ceil": _all("tl.ceil({0})", typed=True),
    "trunc": _device("trunc"),
    "round": {"": Spelling("litz_round({0})", "rint")},
    "pow": {"float": Spelling("litz_pow({0}, {1})", "pow"), "uint": Spelling("litz_unsigned_pow({0}, {1})"),
            "": Spelling("litz_int_pow({0}, {1})")},
    "hypot": _device("hypot", 2),
    "exp": _all("tl.exp({0})", typed=True),
    "exp2": _all("tl.exp2({0})", typed=True),
    "expm1": _device("expm1"),
    "log": _all("tl.log({0})", typed=True),
    "log2": _all("tl.log2({0})", typed=True),
    "log10": _device("log10"),
    "log1p": _device("log1p"),
    "sigmoid": {"f64": Spelling("1.0 / (1.0 + tl.exp(-{0}))", typed=True),
                "": Spelling("litz_sigmoid({0})")},
    "sin": _all("tl.sin({0})", typed=True),
    "cos": _all("tl.cos({0})", typed=True),
    "tan": _device("tan"),
    "asin": _device("asin"),
    "acos": _device("acos"),
    "atan": _device("atan"),
    "atan2": _device("atan2", 2),
    "sinh": _device("sinh"),
    "cosh": _device("cosh"),
    "tanh": {"f64": Spelling("litz_tanh({0})", "tanh"), "": Spelling("litz_tanh_of_f32({0})")},
    "asinh": _device("asinh"),
    "acosh": _device("acosh"),
    "atanh": _device("atanh"),
    "erf": _all("tl.erf({0})", typed=True),
    "erfc": _device("erfc"),
    "erfinv": _device("erfinv"),
    "lgamma": _device("lgamma"),
    "digamma": _all("litz_digamma({0})"),
    "zeta": _all("litz_zeta({0}, {1})"),
    "gamma_series": _all("litz_gamma_series({0}, {1})"),
    "gamma_fraction": _all("litz_gamma_fraction({0}, {1})"),
    "three_term": _all("litz_three_term({0}, {1}, {2}, {3}, {4}, {5}, {6})"),
    "copysign": {"f64": Spelling("litz_copysign({0}, {1}, tl.uint64, 63)"),
                 "": Spelling("litz_copysign({0}, {1}, tl.uint32, 31)", exact=True)},
    "nextafter": _nextafter(),
    "bit_and": _all("{0} & {1}"),
    "bit_or": _all("{0} | {1}"),
    "bit_xor": _all("{0} ^ {1}"),
    "bit_not": {"uint": Spelling("{0} ^ ({0} * 0 - 1)"), "": Spelling("~{0}", typed=True)},
    "shift_left": _all("litz_shift_left({0}, {1})"),
    "shift_right": {"uint": Spelling("litz_unsigned_shift_right({0}, {1})"),
                    "": Spelling("litz_shift_right({0}, {1})")},
    "eq": _compare("=="),
    "ne": _compare("!="),
    "lt": _compare("<"),
    "le": _compare("<="),
    "gt": _compare(">"),
    "ge": _compare(">="),
    "isnan": _all("{0} != {0}"),
    "isinf": _all('tl.abs({0}) == float("inf")', typed=True),
    "signbit": {"f64": Spelling("{0}.to(tl.int64, bitcast=True) < 0", typed=True),
                "float": Spelling("{0}.to(tl.int32, bitcast=True) < 0", typed=True),
                "uint": Spelling("{0} != {0}"), "": Spelling("{0} < 0")},
    # the dtype of these rows is that of the result
    "random_uniform": {"f64": Spelling("litz_random_uniform64({0}, {1})"),
                       "f32": Spelling("litz_random_uniform({0}, {1}, 24)"),
                       "f16": Spelling("litz_random_uniform({0}, {1}, 11)"),
                       "bf16": Spelling("litz_random_uniform({0}, {1}, 8)")},
    "random_normal": {"f64": Spelling("litz_random_normal64({0}, {1})"),
                      "float": Spelling("litz_random_normal({0}, {1})")},
    "random_bits": {"i64": Spelling("litz_random_bits64({0}, {1}).to(tl.int64)"),
                    "u64": Spelling("litz_random_bits64({0}, {1})"),
                    "bool": Spelling("(litz_random_bits({0}, {1}) & 1) != 0"),
                    **{dtype.name: Spelling(f"litz_random_bits({{0}}, {{1}}).to({COMPILED[dtype].stored})")
                       for dtype in (i32, i16, i8, u32, u16, u8)}},
}  # fmt: skip

SPELLINGS: Mapping[str, _Rows] = MappingProxyType(_TABLE)
"""Spellings of all operations but ``cast`` and ``bitcast``, which ``emit.casts`` spells by both dtypes."""

APPROXIMATE: Mapping[str, Spelling] = MappingProxyType(
    {
        "div": Spelling("{0} / {1}"),
        "reciprocal": Spelling("1.0 / {0}"),
    }
)
"""Approximate spellings of ``f32`` results that are rounded to ``bf16`` at once, which hides errors in the last bits.

The rounded quotient of two ``bf16`` values is exact: none is nearer to the midpoint of two ``bf16`` values than 2^-17
of itself.
"""

ONE_PLUS_ERF = Spelling("litz_one_plus_erf({0})")
"""Spelling of ``1 + erf`` over ``f32``: half the instructions of the sum, and no cancellation below zero."""


def spelling(operation: str, dtype: DType) -> Spelling:
    """Return the spelling of an operation over arguments of ``dtype``. Raises ``CodegenError`` if there is none."""
    rows = SPELLINGS.get(operation, {})
    for name in (dtype.name, dtype.kind, ""):
        if name in rows:
            return rows[name]
    raise CodegenError(f"{operation} over {dtype} has no Triton spelling", hint="add a row to emit.ops_table")


def differing_rows() -> frozenset[str]:
    """Return the operations that the compiled and the interpreted form spell differently."""
    return frozenset(name for name, rows in SPELLINGS.items() if any(row.libdevice for row in rows.values()))


_OWN = frozenset(SPELLINGS)


def register_spelling(operation: str, rows: Mapping[str, Spelling]) -> None:
    """Add the Triton spellings of a scalar operation that another package registered.

    ``rows`` are by dtype (``"f32"``), kind of dtype (``"float"``), or ``""`` for all. Their texts become part of
    kernels as they are. Registering the same spellings again changes nothing. Raises ``ConfigError`` for an operation
    that has others, or that no package registered.
    """
    if SPELLINGS.get(operation) == rows:
        return
    if operation in SPELLINGS or operation not in OPS:
        why = "has a spelling" if operation in SPELLINGS else "is no scalar operation"
        raise ConfigError(f"{operation} {why}", hint="register the operation by litz_ir.extension first")
    _TABLE[operation] = dict(rows)


def spelled_operations() -> frozenset[str] | None:
    """Return the operations that kernels compute, for their capabilities; ``None`` for litz's own."""
    return None if SPELLINGS.keys() == _OWN else frozenset(SPELLINGS)
