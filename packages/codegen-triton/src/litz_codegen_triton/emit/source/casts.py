"""Conversions between dtypes, and between the representations of a value in memory and in registers.

In registers low-precision floats are ``float32`` values that their dtype represents exactly, and bools are ``int1``.
Every function takes the text of a tensor (not of a literal) and returns the text of the converted one.
"""

from __future__ import annotations

from litz_codegen_triton.emit.source.ops_table import Form, row_of, triton_type
from litz_ir.dtypes import DType


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
    return row_of(dtype, form).encode.format(text)


def decode(text: str, dtype: DType, form: Form) -> str:
    """Convert from the representation in memory to that in registers."""
    return row_of(dtype, form).decode.format(text)


def multiplied_type(dtype: DType) -> str:
    """Return the Triton type in which ``tl.dot`` takes an fp8 dtype, whose memory has integers; empty for others."""
    return row_of(dtype, "compiled").multiplied


def encode_operand(text: str, dtype: DType, form: Form) -> str:
    """Convert a low-precision float from registers to an operand of ``tl.dot``."""
    stored, type_ = encode(text, dtype, form), multiplied_type(dtype)
    return f"{stored}.to({type_}, bitcast=True)" if type_ else stored


def stored_type(dtype: DType, form: Form) -> str:
    """Return the Triton type of a dtype in memory, which is that of :func:`encode`'s result."""
    return row_of(dtype, form).stored


def bitcast(text: str, source: DType, result: DType, form: Form) -> str:
    """Reinterpret the bits of a ``source`` value as ``result``."""
    stored = encode(text, source, form)
    if stored_type(source, form) != stored_type(result, form):
        stored = f"{stored}.to({stored_type(result, form)}, bitcast=True)"
    return decode(stored, result, form)
