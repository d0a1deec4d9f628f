"""Scalar types and their promotion.

Complex numbers are pairs of scalars on a trailing dimension of two, so no complex dtype exists here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from litz_ir.errors import DTypeError

DTypeKind = Literal["float", "int", "uint", "bool"]


@dataclass(frozen=True, slots=True)
class DType:
    """A scalar type. ``name`` is its spelling in the text form, ``bits`` its width in memory.

    ``mantissa`` counts explicit mantissa bits of a float (0 for the others). Instances are the module's constants;
    compare with ``==`` or ``is``.
    """

    name: str
    kind: DTypeKind
    bits: int
    mantissa: int = 0

    @property
    def itemsize(self) -> int:
        """Bytes per element in memory."""
        return (self.bits + 7) // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers, false for ``b1``."""
        return self.kind in ("int", "uint")

    @property
    def is_bool(self) -> bool:
        return self.kind == "bool"

    @property
    def is_signed(self) -> bool:
        return self.kind in ("float", "int")

    @property
    def is_low_precision(self) -> bool:
        """Floats narrower than 32 bits: computed in ``f32``, rounded where the body says ``cast``."""
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
_BY_NAME = {d.name: d for d in ALL}


def dtype(name: str) -> DType:
    """The dtype of that name; raises :class:`DTypeError` naming the known ones."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise DTypeError(f"unknown dtype {name!r}", hint=f"one of {', '.join(_BY_NAME)}") from None


def compute_dtype(d: DType) -> DType:
    """The dtype in which arithmetic on ``d`` happens: ``f32`` for narrow floats, else ``d``."""
    return f32 if d.is_low_precision else d


def accumulate_dtype(d: DType) -> DType:
    """The dtype in which sums over ``d`` accumulate: ``f32`` for narrow floats, ``i64`` for integers and bools."""
    if d.is_float:
        return compute_dtype(d)
    return i64


_SIGNED_ABOVE = {8: i16, 16: i32, 32: i64}


def promote(a: DType, b: DType) -> DType:
    """The dtype that holds both operands, by the rules of the array API as PyTorch applies them between tensors.

    Bool yields to integers, integers to floats; ``bf16`` with ``f16`` gives ``f32``; ``u8`` with a signed integer gives
    the smallest signed type that holds both. Raises :class:`DTypeError` where PyTorch has no rule (``u64`` with a
    signed integer, two different 8-bit floats).
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
