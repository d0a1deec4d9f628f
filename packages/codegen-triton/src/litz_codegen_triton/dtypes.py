"""Dtypes in Triton: a row for each dtype that kernels load, store and convert."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from litz_ir.dtypes import ALL, DType, b1, bf16, f8e4m3fn, f8e5m2, f16, f32, f64


@dataclass(frozen=True, slots=True)
class TritonDType:
    """A dtype in memory, and the conversion of a value to and from registers.

    In registers low-precision floats are ``float32`` and bools ``int1``; any other dtype is as in memory.
    """

    stored: str
    """Triton's type of an element in memory."""

    pointer: str
    """Element type of a pointer in a kernel's signature."""

    encode: str = "{}"
    """Conversion of a text from registers to memory."""

    decode: str = "{}"
    """Conversion of a text from memory to registers."""

    multiplied: str = ""
    """Type in which ``tl.dot`` takes elements that are integers in memory; empty where it takes ``stored``."""


def _integer(dtype: DType) -> TritonDType:
    return TritonDType(f"tl.{dtype.torch_name}", dtype.name)


def _half(dtype: DType, pointer: str) -> TritonDType:
    """Return the row of a 16-bit float, which Triton converts itself."""
    stored = f"tl.{dtype.torch_name}"
    return TritonDType(stored, pointer, f"{{}}.to({stored})", "{}.to(tl.float32)")


def _narrow(dtype: DType, multiplied: str) -> TritonDType:
    """Return the row of an 8-bit float, whose bits are converted by ``emit.library.narrow_floats``."""
    largest = dtype.largest_code
    beyond = largest if dtype.finite else largest + 1
    form = f"{dtype.mantissa}, {dtype.bias}, {largest}"
    encode, decode = f"litz_fp8_bits({{}}, {form}, {beyond})", f"litz_fp8_value({{}}, {form})"
    return TritonDType("tl.uint8", "u8", encode, decode, multiplied)


COMPILED: Mapping[DType, TritonDType] = MappingProxyType(
    {
        f64: TritonDType("tl.float64", "fp64"),
        f32: TritonDType("tl.float32", "fp32"),
        bf16: _half(bf16, "bf16"),
        f16: _half(f16, "fp16"),
        f8e4m3fn: _narrow(f8e4m3fn, "tl.float8e4nv"),
        f8e5m2: _narrow(f8e5m2, "tl.float8e5"),
        b1: TritonDType("tl.uint8", "u8", "{}.to(tl.uint8)", "{} != 0"),
    }
    | {dtype: _integer(dtype) for dtype in ALL if dtype.is_integer}
)
"""The rows in compiled kernels. Dtypes without a row are not supported."""

INTERPRETED: Mapping[DType, TritonDType] = MappingProxyType(
    {**COMPILED, bf16: TritonDType("tl.uint16", "u16", "litz_bf16_bits({})", "litz_bf16_value({})")}
)
"""The rows in interpreted kernels: NumPy, on which the interpreter runs, has no ``bfloat16``."""

ROWS: Mapping[str, Mapping[DType, TritonDType]] = MappingProxyType(
    {"compiled": COMPILED, "interpreted": INTERPRETED}
)
"""The rows by the form of a kernel."""

SUPPORTED = frozenset(COMPILED)
"""Dtypes of kernels."""
