"""Functions that NumPy lacks, over ``float64`` arrays."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from litz_ir.interp.encoding import Array


def _elementwise(function: Callable[[float], float]) -> Callable[[Array], Array]:
    ufunc = np.frompyfunc(function, 1, 1)

    def apply(x: Array) -> Array:
        return np.asarray(ufunc(x)).astype(np.float64)

    return apply


def _lgamma(x: float) -> float:
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):
        return math.inf  # a pole, or too large to hold


erf = _elementwise(math.erf)
erfc = _elementwise(math.erfc)
lgamma = _elementwise(_lgamma)


def erfinv(x: Array) -> Array:
    """The inverse of ``erf``: NaN outside ``[-1, 1]``, infinite at its ends.

    Winitzki's approximation, then Newton steps on ``erfc``, which keeps its precision near the ends.
    """
    magnitude = np.abs(x)
    inside = magnitude < 1
    safe = np.where(inside, magnitude, 0.0)
    a = 0.147
    log = np.log1p(-safe * safe)
    half = 2 / (math.pi * a) + log / 2
    y = np.sqrt(np.maximum(np.sqrt(half * half - log / a) - half, 0.0))
    for _ in range(4):
        error = np.where(safe < 0.5, safe - erf(y), erfc(y) - (1 - safe))
        step = error * (math.sqrt(math.pi) / 2) * np.exp(y * y)
        y = y + step / (1 - y * step)  # Halley's correction to Newton's step
    return np.copysign(np.where(inside, y, np.where(magnitude == 1, np.inf, np.nan)), x)


def digamma(x: Array) -> Array:
    """The derivative of ``lgamma``: infinite at zero with the opposite sign, NaN at negative integers.

    Reflection for negative arguments, the recurrence up to 10, then the asymptotic series (Abramowitz & Stegun 6.3).
    """
    pole = (x <= 0) & (x == np.floor(x))
    negative = (x < 0) & ~pole
    y = np.where(pole, 1.0, np.where(negative, 1 - x, x))
    shift = np.zeros_like(y)
    for _ in range(10):
        small = y < 10
        shift = np.where(small, shift - 1 / np.where(small, y, 1.0), shift)
        y = np.where(small, y + 1, y)
    inverse = 1 / (y * y)
    series = np.zeros_like(y)
    for coefficient in (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12):
        series = (series + coefficient) * inverse
    result = np.log(y) - 0.5 / y - series + shift
    # tan has period pi, so the integer part may go first, which keeps large arguments exact.
    reflected = result - math.pi / np.tan(math.pi * np.where(negative, x - np.trunc(x), 0.5))
    result = np.where(negative, reflected, result)
    return np.where(pole, np.where(x == 0, np.copysign(np.inf, -x), np.nan), result)


def fma(a: Array, b: Array, c: Array) -> Array:
    """``a * b + c`` rounded once, by error-free transformations and rounding to odd (Boldo and Melquiond, 2008).

    Where an intermediate overflows or is not finite the plain expression stands.
    """
    product, product_error = _two_product(a, b)
    low, low_error = _two_sum(c, product_error)
    high, high_error = _two_sum(product, low)
    result = high + round_to_odd(low_error, high_error)
    plain = a * b + c
    return np.where(np.isfinite(result) & np.isfinite(plain), result, plain)


def fma_narrow(a: Array, b: Array, c: Array) -> Array:
    """``a * b + c`` of ``float32`` values, as ``float64`` rounded to odd: rounding it once more is exact."""
    product = a.astype(np.float64) * b.astype(np.float64)  # 48 bits: exact
    return round_to_odd(product, np.asarray(c, np.float64))


def round_to_odd(a: Array, b: Array) -> Array:
    """``a + b`` such that an inexact sum has an odd last bit, which survives a second rounding unharmed."""
    total, error = _two_sum(a, b)
    even = np.atleast_1d(total).view(np.int64).reshape(np.shape(total)) % 2 == 0
    adjust = (error != 0) & np.isfinite(total) & np.isfinite(error) & even
    return np.where(adjust, np.nextafter(total, np.copysign(np.inf, error)), total)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    product = a * b
    a_high, a_low = _split(a)
    b_high, b_low = _split(b)
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _split(a: Array) -> tuple[Array, Array]:
    scaled = a * 134217729.0  # 2**27 + 1: Veltkamp's splitting of 53 bits
    high = scaled - (scaled - a)
    return high, a - high
