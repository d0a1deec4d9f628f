"""Special functions that NumPy lacks, over ``float64`` arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

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
        return math.inf  # a pole, or an overflow


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
    # tan has period pi, so the integer part is removed first, which is exact for large arguments.
    reflected = result - math.pi / np.tan(math.pi * np.where(negative, x - np.trunc(x), 0.5))
    result = np.where(negative, reflected, result)
    return np.where(pole, np.where(x == 0, np.copysign(np.inf, -x), np.nan), result)


def zeta(x: Array, q: Array) -> Array:
    """Hurwitz's zeta function: the sum of ``(q + k) ** -x`` over ``k >= 0``.

    A negative ``q`` lies ``n = -floor(q)`` steps below ``f = q - floor(q)``. The terms of those steps are, except for
    the sign of ``(-1) ** x``, those of the sum from ``1 - f`` minus the sum from ``1 - q``.
    """
    x, q = np.broadcast_arrays(x, q)
    below = q < 0
    fraction = np.where(below, q - np.floor(q), q)
    steps = _zeta_of_positive(x, 1 - fraction) - _zeta_of_positive(x, 1 - q)
    steps = np.where(np.floor(x * 0.5) * 2 == x, steps, -steps)
    value = _zeta_of_positive(x, fraction) + np.where(below, steps, 0.0)
    pole = (q <= 0) & (q == np.floor(q))
    undefined = (x < 1) | (below & ~pole & (x != np.floor(x))) | np.isnan(x) | np.isnan(q)
    return np.where(undefined, np.nan, np.where(pole | (x == 1), np.inf, value))


_ZETA = (
    12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.8924375803183791606e9, 7.47242496e10, -2.950130727918164224e12,
    1.1646782814350067249e14, -4.5979787224074726105e15, 1.8152105401943546773e17, -7.1661652561756670113e18,
)  # fmt: skip


def _zeta_of_positive(x: Array, q: Array) -> Array:
    """Ten terms of the sum, then the Euler-Maclaurin formula; the constants are (2k)! over Bernoulli's numbers."""
    total = np.power(q, -x)
    for _ in range(9):
        q = q + 1
        term = np.power(q, -x)
        total = total + term
    settled, sum_of_terms = np.abs(term) < 2.0**-53 * np.abs(total), total
    total = total + term * q / (x - 1) - 0.5 * term
    factor = np.ones_like(x)
    for k, constant in enumerate(_ZETA):
        factor = factor * (x + 2 * k)
        term = term / q
        total = total + factor * term / constant
        factor = factor * (x + 2 * k + 1)
        term = term / q
    return np.where(settled, sum_of_terms, total)


_LONGEST_SERIES = 2000
"""Most terms of a series or fraction."""


def gamma_series(a: Array, x: Array) -> Array:
    """The sum of ``x ** k / ((a + 1) ... (a + k))`` over ``k >= 0``, as long as its terms change it."""
    a, x = np.broadcast_arrays(a, x)
    term = np.where(np.isnan(a), a, np.where(np.isnan(x), x, 1.0))
    total = term
    for k in range(1, _LONGEST_SERIES + 1):
        counts = np.abs(term) > 2.0**-53 * np.abs(total)
        if not counts.any():
            break
        term = np.where(counts, term * (x / (a + k)), 0.0)
        total = total + term
    return total


def gamma_fraction(a: Array, x: Array) -> Array:
    """Legendre's continued fraction of the upper incomplete gamma function, by Lentz's method."""
    a, x = np.broadcast_arrays(a, x)
    b = x + 1 - a
    d = 1 / b
    c = np.full_like(b, np.inf)
    value, going = d, np.ones(b.shape, bool)
    for k in range(1, _LONGEST_SERIES + 1):
        b = b + 2
        step = k * (a - k)
        d = 1 / (b + step * d)
        c = b + step / c
        factor = c * d
        value = np.where(going, value * factor, value)
        going = going & (np.abs(factor - 1) > 2.0**-52)
        if not going.any():
            break
    return value


def _fused(a: Array, b: Array, c: Array) -> Array:
    return fma(a, b, c) if a.dtype == np.float64 else fma_narrow(a, b, c).astype(np.float32)


def three_term(n: Array, first: Array, a: Array, b: Array, c: Array, d: Array, e: Array) -> Array:
    """Term ``n`` of 1, ``first``, … by ``q[k + 1] = ((a k + b) q[k] - (c + d k) q[k - 1]) / (e k + 1)``.

    In the arguments' dtype, ``f32`` or ``f64``.
    """
    n, first, a, b, c, d, e = np.broadcast_arrays(n, first, a, b, c, d, e)
    real = first.dtype.type
    representable = (n > -1) & (n < 2.0**63)
    last = np.trunc(np.where(representable, n, -1))
    before, value = np.ones_like(first), first
    k = 1
    while (going := (k < last) & ~np.isnan(value)).any():
        less = (c + d * real(k)) * before
        following = _fused(_fused(a, real(k), b), value, -less) / (e * real(k) + 1)
        before, value = np.where(going, value, before), np.where(going, following, value)
        k += 1
    return np.where(last < 0, real(0), np.where(last < 1, real(1), value))


_LARGE, _SMALL = 2.0**995, 2.0**-900
"""Bounds within which the error-free transformations of :func:`fma` neither overflow nor lose bits."""


def fma(a: Array, b: Array, c: Array) -> Array:
    """``a * b + c`` rounded once, by error-free transformations and rounding to odd (Boldo and Melquiond, 2008).

    Finite numbers whose product may overflow or underflow are computed as fractions, one by one.
    """
    a, b, c = np.broadcast_arrays(a, b, c)
    product, product_error = _two_product(a, b)
    low, low_error = _two_sum(c, product_error)
    high, high_error = _two_sum(product, low)
    result = high + _round_to_odd(low_error, high_error)
    finite = np.isfinite(a) & np.isfinite(b)
    # A product of zero is exact, as is that of an infinity; of finite numbers none changes an infinity or NaN.
    result = np.where(~finite | (a == 0) | (b == 0), a * b + c, np.where(np.isfinite(c), result, c))
    magnitude = np.abs(product)
    safe = (magnitude < _LARGE) & (magnitude > _SMALL) & (np.maximum(np.abs(a), np.abs(b)) < _LARGE)
    unsafe = finite & np.isfinite(c) & (a != 0) & (b != 0) & ~(safe & (np.abs(c) < _LARGE))
    result[unsafe] = [_fma_of_fractions(*each) for each in zip(a[unsafe], b[unsafe], c[unsafe])]
    return result


def _fma_of_fractions(a: float, b: float, c: float) -> float:
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    try:
        return float(exact)  # rounded to nearest, with ties to even, and to a zero of its sign
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def fma_narrow(a: Array, b: Array, c: Array) -> Array:
    """``a * b + c`` of ``float32`` values, as ``float64`` rounded to odd: rounding it once more is exact."""
    product = a.astype(np.float64) * b.astype(np.float64)  # 48 bits: exact
    return _round_to_odd(product, np.asarray(c, np.float64))


def _round_to_odd(a: Array, b: Array) -> Array:
    """``a + b`` with an odd last bit if the sum is inexact, so that a second rounding is exact."""
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
