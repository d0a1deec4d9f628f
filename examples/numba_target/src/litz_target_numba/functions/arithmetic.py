"""Arithmetic and conversions that differ from Numba's, or that it lacks."""

from __future__ import annotations

import math

import numpy as np

from litz_target_numba.functions.instructions import jit

_ONE = np.uint64(1)

# --- integers -----------------------------------------------------------------------------------------------


@jit
def trunc_div(a: int, b: int) -> int:
    """Quotient of signed integers, rounded towards zero; 0 if ``b`` is 0."""
    if b == -1:
        return -a  # the smallest integer wraps
    quotient = a // b
    return quotient + 1 if quotient < 0 and quotient * b != a else quotient


@jit
def fmod(a: int, b: int) -> int:
    """Rest of :func:`trunc_div` of signed integers, with the sign of ``a``."""
    rest = a % b
    return rest - b if rest != 0 and (a < 0) != (rest < 0) else rest


@jit
def gcd(a: np.uint64, b: np.uint64) -> np.uint64:
    """Greatest common divisor of unsigned integers."""
    while b != 0:
        a, b = b, a % b
    return a


@jit
def power(base: int, exponent: int) -> np.int64:
    """Power of integers, modulo 2**64; a negative exponent gives 0, except for the bases 1 and -1."""
    if exponent < 0:
        if base == -1:
            return np.int64(1 if exponent % 2 == 0 else -1)
        return np.int64(1 if base == 1 else 0)
    result, square, rest = np.uint64(1), np.uint64(base), np.uint64(exponent)
    while rest != 0:
        if rest & _ONE:
            result *= square
        square *= square
        rest >>= _ONE
    return np.int64(result)


# --- conversions of floats, as x86 does them ----------------------------------------------------------------


@jit
def to_i32(x: float) -> np.int32:
    """Float truncated to an integer; the smallest integer for NaN and beyond the range."""
    return np.int32(x) if -2147483649.0 < x < 2147483648.0 else np.int32(-2147483648)


@jit
def to_i64(x: float) -> np.int64:
    """Float truncated to an integer; the smallest integer for NaN and beyond the range."""
    return np.int64(x) if -(2.0**63) <= x < 2.0**63 else np.int64(-(2**63))


@jit
def to_u64(x: float) -> np.uint64:
    """Float truncated to an integer; 0 above the range, 2**63 for NaN and below the range of ``int64``."""
    if x >= 2.0**63:
        return np.uint64(x) if x < 2.0**64 else np.uint64(0)
    return np.uint64(to_i64(x))


# --- floats, in their own type ------------------------------------------------------------------------------


@jit
def minimum(a: float, b: float) -> float:
    """Smaller one of two floats, NaN if either is NaN."""
    return a if a < b or a != a else b


@jit
def maximum(a: float, b: float) -> float:
    """Larger one of two floats, NaN if either is NaN."""
    return a if a > b or a != a else b


@jit
def remainder(a: float, b: float) -> float:
    """Rest of :func:`floor_div`, with the sign of ``b``."""
    rest: float = np.fmod(a, b)
    return rest + b if rest != 0 and (b < 0) != (rest < 0) else rest


@jit
def floor_div(a: float, b: float) -> float:
    """Quotient rounded down, from the exact rest; zero has the sign of the quotient."""
    real = type(a)
    if b == 0:
        return a / b
    rest = np.fmod(a, b)
    quotient = (a - rest) / b
    if rest != 0 and (b < 0) != (rest < 0):
        quotient -= real(1)
    if quotient == 0:
        return math.copysign(real(0), a / b)
    floored: float = np.floor(quotient)
    return floored + real(1) if quotient - floored > 0.5 else floored
