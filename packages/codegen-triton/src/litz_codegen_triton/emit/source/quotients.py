"""Exact f32 quotients by constants, without the division, of which GPUs make a routine with branches."""

from __future__ import annotations

import math
import struct

from litz_codegen_triton.emit.source.ops_table import Spelling
from litz_ir.dtypes import bf16, f16, f32
from litz_ir.scalar import Const, Expr, Op

_LARGEST_DIVISOR = 1 << 16
"""Bound on divisors: the remainder of the first quotient and the distance of a quotient from the midpoint of two f32
values, at least 1 / (2 * divisor) of their distance, need bits."""

_LARGEST_EXPONENT = 126
"""Bound on the exponents of powers of two whose reciprocal is a normal f32 value too."""


def quotient_spelling(expr: Op) -> Spelling | None:
    """Return a spelling of an f32 division by a constant with the value of a division; ``None`` where none is known.

    A multiplication by the reciprocal of a power of two is rounded once, as the division is. Otherwise
    ``litz_quotient`` corrects the dividend times the reciprocal by the remainder (Markstein). For integers that is
    right for every dividend, except that a subnormal quotient by an even number may be the midpoint of two values; no
    value of 16 bits has such a quotient.
    """
    if expr.name != "div" or expr.dtype != f32:
        return None
    dividend, divisor = expr.args
    if not isinstance(divisor, Const) or isinstance(dividend, Const):
        return None
    number = float(divisor.value)
    if not math.isfinite(number) or number == 0:
        return None
    mantissa, exponent = math.frexp(number)
    if abs(mantissa) == 0.5 and abs(exponent) <= _LARGEST_EXPONENT:
        return Spelling(f"{{0}} * {1 / number!r}")
    if not number.is_integer() or not 0 < number < _LARGEST_DIVISOR:
        return None
    if number % 2 == 0 and not _has_16_bits(dividend):
        return None
    return Spelling(f"litz_quotient({{0}}, {number!r}, {_as_f32(1 / number)!r})")


def _has_16_bits(expr: Expr) -> bool:
    """Return whether a value is that of a float of 16 bits."""
    return isinstance(expr, Op) and expr.name == "cast" and expr.args[0].dtype in (bf16, f16)


def _as_f32(value: float) -> float:
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded
