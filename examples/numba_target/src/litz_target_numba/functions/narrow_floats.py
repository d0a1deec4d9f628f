"""Floats below 32 bits: kernels hold their values as ``float32``, and their bits in memory as unsigned
integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from litz_ir.dtypes import DType, bf16, f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f16
from litz_target_numba.functions.instructions import bitcast, jit

_Functions: TypeAlias = tuple[
    Callable[[int | np.int64], np.float32],
    Callable[[np.float32], np.float32],
    Callable[[np.float32], np.int64],
    Callable[[np.float32, np.float32], np.float32],
]


def _functions(dtype: DType) -> _Functions:
    """Return functions to the value of bits, to a value rounded to nearest even, to the bits of such a value,
    and to the value after one towards another.

    Shifted to the place of ``float32``'s exponent, bits are the value times a power of two. Subnormals are no
    exception to that.
    """
    shift = 23 - dtype.mantissa
    scale, inverse = np.float32(2.0 ** (127 - dtype.bias)), np.float32(2.0 ** (dtype.bias - 127))
    lowest_exponent, mantissa, unsigned_zero = 1 - dtype.bias, dtype.mantissa, dtype.unsigned_zero
    largest_code, largest, finite = dtype.largest_code, dtype.largest, dtype.finite
    sign = 1 << (dtype.bits - 1)
    nan = 0x80 if unsigned_zero else 0x7F if dtype.bits == 8 else largest_code + 1 + (1 << (mantissa - 1))
    signed_nan = not unsigned_zero and dtype != bf16
    overflow = np.float32(np.nan if unsigned_zero else largest if finite else np.inf)

    @jit
    def from_bits(bits: int | np.int64) -> np.float32:
        code = np.int64(bits)
        magnitude = code & (sign - 1)
        value: np.float32 = bitcast(np.uint32(magnitude << shift), np.float32) * scale
        if magnitude > largest_code:
            value = np.float32(np.nan) if finite or magnitude > largest_code + 1 else np.float32(np.inf)
        if code < sign:
            return value
        return np.float32(np.nan) if unsigned_zero and magnitude == 0 else -value

    @jit
    def rounded(x: np.float32) -> np.float32:
        if x != x:
            return x
        unbiased = (np.int64(bitcast(abs(x), np.uint32)) >> 23) - 127
        exponent = unbiased if unbiased > lowest_exponent else np.int64(lowest_exponent)
        quantum = bitcast((exponent - mantissa + 1023) << 52, np.float64)
        value = np.float32(np.rint(np.float64(x) / quantum) * quantum)
        if abs(value) > largest:
            return overflow if value > 0 else -overflow
        return np.float32(0) if unsigned_zero and value == 0 else value

    @jit
    def bits_of(x: np.float32) -> np.int64:
        negative = bitcast(x, np.int32) < 0
        if x != x:
            return np.int64(nan | sign if negative and signed_nan else nan)
        magnitude = abs(x)
        code = np.int64(bitcast(magnitude * inverse, np.uint32)) >> shift
        if magnitude > largest:
            code = np.int64(largest_code + 1)
        return code | sign if negative else code

    @jit
    def following(a: np.float32, b: np.float32) -> np.float32:
        if a != a or b != b:
            return np.float32(np.nan)
        if a == b:
            return b
        code = bits_of(a)
        step = (sign - code if code >= sign else code) + (1 if a < b else -1)
        # Negative steps count down from zero, and so do the codes above that of the sign.
        value = from_bits(sign - step if step < 0 else step)
        return np.float32(np.copysign(value, a)) if value == 0 and not unsigned_zero else value

    return from_bits, rounded, bits_of, following


from_bf16, round_bf16, bits_of_bf16, next_bf16 = _functions(bf16)
from_f16, round_f16, bits_of_f16, next_f16 = _functions(f16)
from_f8e4m3fn, round_f8e4m3fn, bits_of_f8e4m3fn, next_f8e4m3fn = _functions(f8e4m3fn)
from_f8e5m2, round_f8e5m2, bits_of_f8e5m2, next_f8e5m2 = _functions(f8e5m2)
from_f8e4m3fnuz, round_f8e4m3fnuz, bits_of_f8e4m3fnuz, next_f8e4m3fnuz = _functions(f8e4m3fnuz)
from_f8e5m2fnuz, round_f8e5m2fnuz, bits_of_f8e5m2fnuz, next_f8e5m2fnuz = _functions(f8e5m2fnuz)
