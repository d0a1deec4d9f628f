"""Scalar dtypes and their promotion.

Complex numbers are pairs of scalars on a last dimension of two, so there is no complex dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
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
    "extreme_value",
]

DTypeKind = Literal["float", "int", "uint", "bool"]
"""Kind of a dtype."""


@dataclass(frozen=True, slots=True)
class DType:
    """A scalar dtype. Instances are the constants of this module, known by name; compare with ``==`` or ``is``."""

    name: str
    """Spelling in the text form."""
    kind: DTypeKind = field(compare=False)
    """Kind of its values."""
    bits: int = field(compare=False)
    """Width in memory, in bits."""
    torch_name: str = field(compare=False)
    """Name of torch's dtype, without ``torch.``."""
    mantissa: int = field(default=0, compare=False)
    """Explicit mantissa bits of a float; 0 for others."""
    bias: int = field(default=0, compare=False)
    """Bias of a float's exponent; 0 for others."""
    finite: bool = field(default=False, compare=False)
    """True for a float without infinities, whose codes of the largest exponent are finite, but for NaN."""
    unsigned_zero: bool = field(default=False, compare=False)
    """True for a float without negative zero, whose code is the only NaN."""
    complex_name: str = field(default="", compare=False)
    """Name of torch's complex dtype with such parts; empty where there is none."""

    def __reduce__(self) -> tuple[Callable[[str], DType], tuple[str]]:
        """The constant of this name, also in copies and other processes."""
        return dtype, (self.name,)

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

    @property
    def is_narrow(self) -> bool:
        """True for floats of 8 bits, which NumPy and most devices have as integers of their bits alone."""
        return self.kind == "float" and self.bits == 8

    @property
    def largest_code(self) -> int:
        """The bits of the largest finite value of a float."""
        if not self.finite:
            return (1 << (self.bits - 1)) - (1 << self.mantissa) - 1
        return (1 << (self.bits - 1)) - (1 if self.unsigned_zero else 2)

    @property
    def largest(self) -> float:
        """The largest finite value of a float."""
        exponent, fraction = divmod(self.largest_code, 1 << self.mantissa)
        return (1 + fraction * 2.0**-self.mantissa) * 2.0 ** (exponent - self.bias)

    @property
    def smallest(self) -> float:
        """The smallest positive value of a float."""
        return 2.0 ** (1 - self.bias - self.mantissa)

    def represents(self, other: DType) -> bool:
        """True if both are floats, and every finite value of the other, which is narrower, is one of this float."""
        return (
            self.is_float
            and other.is_float
            and other.bits < self.bits
            and other.mantissa <= self.mantissa
            and other.largest <= self.largest
            and self.smallest <= other.smallest
        )

    def __str__(self) -> str:
        return self.name


f64 = DType("f64", "float", 64, "float64", mantissa=52, bias=1023, complex_name="complex128")
"""Float of 64 bits, IEEE 754 binary64."""
f32 = DType("f32", "float", 32, "float32", mantissa=23, bias=127, complex_name="complex64")
"""Float of 32 bits, IEEE 754 binary32."""
bf16 = DType("bf16", "float", 16, "bfloat16", mantissa=7, bias=127)
"""Float of 16 bits with the exponent of ``f32`` and 7 bits of mantissa."""
f16 = DType("f16", "float", 16, "float16", mantissa=10, bias=15, complex_name="complex32")
"""Float of 16 bits, IEEE 754 binary16."""
f8e4m3fn = DType("f8e4m3fn", "float", 8, "float8_e4m3fn", mantissa=3, bias=7, finite=True)
"""Float of 8 bits with 3 bits of mantissa, without infinities."""
f8e5m2 = DType("f8e5m2", "float", 8, "float8_e5m2", mantissa=2, bias=15)
"""Float of 8 bits with 2 bits of mantissa and with infinities."""
f8e4m3fnuz = DType(
    "f8e4m3fnuz", "float", 8, "float8_e4m3fnuz", mantissa=3, bias=8, finite=True, unsigned_zero=True
)
"""Float of 8 bits with 3 bits of mantissa, without infinities and negative zero."""
f8e5m2fnuz = DType(
    "f8e5m2fnuz", "float", 8, "float8_e5m2fnuz", mantissa=2, bias=16, finite=True, unsigned_zero=True
)
"""Float of 8 bits with 2 bits of mantissa, without infinities and negative zero."""
i64 = DType("i64", "int", 64, "int64")
"""Signed integer of 64 bits."""
i32 = DType("i32", "int", 32, "int32")
"""Signed integer of 32 bits."""
i16 = DType("i16", "int", 16, "int16")
"""Signed integer of 16 bits."""
i8 = DType("i8", "int", 8, "int8")
"""Signed integer of 8 bits."""
u64 = DType("u64", "uint", 64, "uint64")
"""Unsigned integer of 64 bits."""
u32 = DType("u32", "uint", 32, "uint32")
"""Unsigned integer of 32 bits."""
u16 = DType("u16", "uint", 16, "uint16")
"""Unsigned integer of 16 bits."""
u8 = DType("u8", "uint", 8, "uint8")
"""Unsigned integer of 8 bits."""
b1 = DType("b1", "bool", 8, "bool")
"""Bool, stored in a byte."""

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
