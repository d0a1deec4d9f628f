"""Fragments of C++ text: strings, tables and lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import pack, unpack

from litz_ir.dtypes import DType

DTYPES = (
    "b1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64", "f8e4m3fn", "f8e5m2",
    "f8e4m3fnuz", "f8e5m2fnuz",
)  # fmt: skip
"""Names of the dtypes in the order of ``litz_dtype`` in litz.h."""


def dtype_number(dtype: DType) -> int:
    """Return the value of ``litz_dtype`` for a dtype."""
    return DTYPES.index(dtype.name)


def string_text(text: str) -> str:
    """Return a string as a C literal of its UTF-8 bytes; bytes that are not plain become octal escapes."""
    plain = (chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode())
    return f'"{"".join(plain)}"'


def int64_text(value: int) -> str:
    """Return an integer of 64 bits as a C++ literal."""
    return "(-9223372036854775807ll - 1)" if value == -(2**63) else f"{value}ll"


def double_text(value: float) -> str:
    """Return the bits of a double, infinite ones and NaN too, as a C++ literal of an ``int64_t``."""
    (bits,) = unpack("<q", pack("<d", value))
    return int64_text(bits)


def array_text(kind: str, name: str, items: Sequence[str]) -> str:
    """Return a static array; one without items has an element that nothing reads, since C++ has no empty arrays."""
    return f"static {kind} {name}[] = {{{', '.join(items) or '{}'}}};"


def block(head: str, lines: Iterable[str]) -> str:
    """Return a function or block of indented lines."""
    body = "".join(f"  {line}\n" for line in lines)
    return f"{head} {{\n{body}}}"
