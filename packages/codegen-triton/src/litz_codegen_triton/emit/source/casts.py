"""Conversions between dtypes, and between the representations of a value in memory and in registers.

In registers low-precision floats are ``float32`` values that their dtype represents exactly, and bools are ``int1``.
Every function takes the text of a tensor (not of a literal) and returns the text of the converted one.
"""

from __future__ import annotations

from litz_codegen_triton.emit.source.ops_table import TRITON_TYPES, Form, triton_type
from litz_ir.dtypes import DType, bf16, f8e4m3fn, f8e5m2, f16

# Mantissa bits, exponent bias, code of the largest finite value, code of values that exceed it.
_FP8 = {f8e4m3fn: (3, 7, 0x7E, 0x7E), f8e5m2: (2, 15, 0x7B, 0x7C)}

_FP8_TYPES = {f8e4m3fn: "tl.float8e4nv", f8e5m2: "tl.float8e5"}


def cast(text: str, source: DType, result: DType, form: Form) -> str:
    """Convert from ``source`` to ``result``, by the rules of ``litz_ir.interp.scalar``, which are eager PyTorch's."""
    if source == result:
        return text
    if result.is_bool:
        return f"{text} != 0"
    if source.is_float and result.is_integer:
        # The intermediate type decides the result of a value that does not fit a short integer.
        through = "tl.int32" if result.kind == "int" and result.bits <= 32 else "tl.int64"
        integer = f"{text}.to({through})"
        return integer if triton_type(result) == through else f"{integer}.to({triton_type(result)})"
    converted = text if triton_type(source) == triton_type(result) else f"{text}.to({triton_type(result)})"
    return round_to(converted, result, form) if result.is_low_precision else converted


def round_to(text: str, dtype: DType, form: Form) -> str:
    """Round a ``float32`` value to the low-precision float ``dtype``, as a ``float32`` value."""
    return decode(encode(text, dtype, form), dtype, form)


def encode(text: str, dtype: DType, form: Form) -> str:
    """Convert from the representation in registers to that in memory, of type :func:`stored_type`."""
    if dtype in _FP8:
        return f"litz_fp8_bits({text}, {', '.join(map(str, _FP8[dtype]))})"
    if dtype == bf16 and form == "interpreted":
        return f"litz_bf16_bits({text})"
    if dtype.is_bool:
        return f"{text}.to(tl.uint8)"
    return f"{text}.to({TRITON_TYPES[dtype.name]})" if dtype in (bf16, f16) else text


def decode(text: str, dtype: DType, form: Form) -> str:
    """Convert from the representation in memory to that in registers."""
    if dtype in _FP8:
        mantissa, bias, largest, _ = _FP8[dtype]
        return f"litz_fp8_value({text}, {mantissa}, {bias}, {largest})"
    if dtype == bf16 and form == "interpreted":
        return f"litz_bf16_value({text})"
    if dtype.is_bool:
        return f"{text} != 0"
    return f"{text}.to(tl.float32)" if dtype in (bf16, f16) else text


def multiplied_type(dtype: DType) -> str:
    """Return the Triton type in which ``tl.dot`` takes an fp8 dtype, whose memory has integers; empty for others."""
    return _FP8_TYPES.get(dtype, "")


def encode_operand(text: str, dtype: DType, form: Form) -> str:
    """Convert a low-precision float from registers to an operand of ``tl.dot``."""
    stored, type_ = encode(text, dtype, form), multiplied_type(dtype)
    return f"{stored}.to({type_}, bitcast=True)" if type_ else stored


def stored_type(dtype: DType, form: Form) -> str:
    """Return the Triton type of a dtype in memory, which is that of :func:`encode`'s result."""
    if dtype in _FP8 or dtype.is_bool:
        return "tl.uint8"
    return "tl.uint16" if dtype == bf16 and form == "interpreted" else TRITON_TYPES[dtype.name]


def bitcast(text: str, source: DType, result: DType, form: Form) -> str:
    """Reinterpret the bits of a ``source`` value as ``result``."""
    stored = encode(text, source, form)
    if stored_type(source, form) != stored_type(result, form):
        stored = f"{stored}.to({stored_type(result, form)}, bitcast=True)"
    return decode(stored, result, form)
