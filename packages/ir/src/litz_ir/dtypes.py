"""Scalar dtypes and their promotion.

Complex numbers are pairs of scalars on a last dimension of two, so there is no complex dtype.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from litz_ir.errors import DTypeError

__all__ = [
    "DTypeKind",
    "DType",
    "f64",
    "f32",
    "bf16",
    "f16",
    "f8e4m3fn",
    "f8e5m2",
    "f8e4m3fnuz",
    "f8e5m2fnuz",
    "i64",
    "i32",
    "i16",
    "i8",
    "u64",
    "u32",
    "u16",
    "u8",
    "b1",
    "ALL",
    "dtype",
    "compute_dtype",
    "accumulate_dtype",
    "promote",
]

DTypeKind = Literal["float", "int", "uint", "bool"]
"""Kind of a dtype."""


@dataclass(frozen=True, slots=True)
class DType:
    """A scalar dtype. Instances are the constants of this module; compare with ``==`` or ``is``."""

    name: str
    """Spelling in the text form."""
    kind: DTypeKind
    """Kind of its values."""
    bits: int
    """Width in memory, in bits."""
    mantissa: int = 0
    """Explicit mantissa bits of a float; 0 for others."""

    @property
    def itemsize(self) -> int:
        """Bytes of an element in memory."""
        return (self.bits + 7) // 8

    @property
    def is_float(self) -> bool:
        """True for floats."""
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers, False for ``b1``."""
        return self.kind in ("int", "uint")

    @property
    def is_bool(self) -> bool:
        """True for ``b1``."""
        return self.kind == "bool"

    @property
    def is_signed(self) -> bool:
        """True for floats and signed integers."""
        return self.kind in ("float", "int")

    @property
    def is_low_precision(self) -> bool:
        """True for floats below 32 bits, which are computed in ``f32`` and rounded."""
        return self.kind == "float" and self.bits < 32

    def __str__(self) -> str:
        return self.name


f64 = DType("f64", "float", 64, 52)
f32 = DType("f32", "float", 32, 23)
bf16 = DType("bf16", "float", 16, 7)
f16 = DType("f16", "float", 16, 10)
f8e4m3fn = DType("f8e4m3fn", "float", 8, 3)
f8e5m2 = DType("f8e5m2", "float", 8, 2)
f8e4m3fnuz = DType("f8e4m3fnuz", "float", 8, 3)
f8e5m2fnuz = DType("f8e5m2fnuz", "float", 8, 2)
i64 = DType("i64", "int", 64)
i32 = DType("i32", "int", 32)
i16 = DType("i16", "int", 16)
i8 = DType("i8", "int", 8)
u64 = DType("u64", "uint", 64)
u32 = DType("u32", "uint", 32)
u16 = DType("u16", "uint", 16)
u8 = DType("u8", "uint", 8)
b1 = DType("b1", "bool", 8)

ALL: tuple[DType, ...] = (
    f64, f32, bf16, f16, f8e4m3fn, f8e5m2, f8e4m3fnuz, f8e5m2fnuz, i64, i32, i16, i8, u64, u32, u16, u8, b1,
)  # fmt: skip
"""All dtypes."""
_BY_NAME = {d.name: d for d in ALL}


def dtype(name: str) -> DType:
    """The dtype called ``name``; raises :class:`DTypeError` with the known names."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise DTypeError(f"unknown dtype {name!r}", hint=f"one of {', '.join(_BY_NAME)}") from None


def compute_dtype(d: DType) -> DType:
    """The dtype of arithmetic on ``d``: ``f32`` for floats below 32 bits, else ``d``."""
    return f32 if d.is_low_precision else d


def accumulate_dtype(d: DType) -> DType:
    """The dtype of sums over ``d``: ``f32`` for floats below 32 bits, ``i64`` for integers and bools, else ``d``."""
    if d.is_float:
        return compute_dtype(d)
    return i64


def extreme_value(d: DType, *, largest: bool) -> int | float | bool:
    """The largest or least value of ``d``; an infinity for floats."""
    if d.is_float:
        return math.inf if largest else -math.inf
    if d.is_bool:
        return largest
    top: int = 2 ** (d.bits - (d.kind == "int")) - 1
    return top if largest else (-top - 1 if d.kind == "int" else 0)


_SIGNED_ABOVE = {8: i16, 16: i32, 32: i64}


def promote(a: DType, b: DType) -> DType:
    """The dtype to which two operands are promoted, by PyTorch's rules between tensors.

    Bool yields to integers, integers to floats; ``bf16`` with ``f16`` gives ``f32``; ``u8`` with a signed integer
    gives the smallest signed dtype that represents both. Raises :class:`DTypeError` if PyTorch has no rule (``u64``
    with a signed integer, two different 8-bit floats).
    """
    if a == b:
        return a
    if a.is_bool or b.is_bool:
        return b if a.is_bool else a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.is_float:
        if a.bits != b.bits:
            return a if a.bits > b.bits else b
        if a.bits == 16:
            return f32
        raise DTypeError(f"no promotion between {a} and {b}", hint="cast one operand explicitly")
    if a.kind == b.kind:
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    if unsigned.bits == 64:
        raise DTypeError(f"no promotion between {a} and {b}", hint="cast one operand explicitly")
    return _SIGNED_ABOVE[unsigned.bits]
