"""Special functions that Python's ``math`` lacks, over ``float64`` alone unless their text says otherwise."""

from __future__ import annotations

import math

import numpy as np

from litz_target_numba.functions.instructions import fma, jit

_LONGEST_SERIES = 2000
"""Most terms of a series or fraction."""

_EULER_MACLAURIN = (
    12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.8924375803183791606e9, 7.47242496e10,
    -2.950130727918164224e12, 1.1646782814350067249e14, -4.5979787224074726105e15, 1.8152105401943546773e17,
    -7.1661652561756670113e18,
)  # fmt: skip
"""(2k)! over Bernoulli's numbers."""


@jit
def erfinv(x: float) -> float:
    """Inverse of ``erf``: Winitzki's approximation, then steps by Newton and Halley."""
    size = abs(x)
    if not size < 1:
        return math.copysign(np.inf, x) if size == 1 else np.nan
    log = math.log1p(-size * size)
    half = 2 / (math.pi * 0.147) + log / 2
    y = math.sqrt(max(math.sqrt(half * half - log / 0.147) - half, 0.0))
    for _ in range(4):
        error = size - math.erf(y) if size < 0.5 else math.erfc(y) - (1 - size)
        step = error * (math.sqrt(math.pi) / 2) * math.exp(y * y)
        y += step / (1 - y * step)
    return math.copysign(y, x)


@jit
def digamma(x: float) -> float:
    """Derivative of ``lgamma``: reflection, recurrence, asymptotic series (Abramowitz & Stegun 6.3)."""
    if x == 0:
        return math.copysign(np.inf, -x)
    result = 0.0
    if x < 0:
        fraction = x - np.trunc(x)
        if fraction == 0:
            return np.nan
        result = -math.pi / math.tan(math.pi * fraction)
        x = 1 - x
    while x < 10:
        result -= 1 / x
        x += 1
    s = 1 / (x * x)
    tail = s * (1 / 240 - s * (1 / 132 - s * (691 / 32760 - s / 12)))
    return result + math.log(x) - 0.5 / x - s * (1 / 12 - s * (1 / 120 - s * (1 / 252 - tail)))


@jit
def zeta(x: float, q: float) -> float:
    """Hurwitz's zeta function: the sum of ``(q + k) ** -x`` over ``k >= 0``.

    A negative ``q`` lies ``-floor(q)`` steps below ``q - floor(q)``: the terms of those steps are a
    difference of two sums over positive arguments, except for the sign of ``(-1) ** x``.
    """
    pole = q <= 0 and q == np.floor(q)
    if x != x or q != q or x < 1 or (q < 0 and not pole and x != np.floor(x)):
        return np.nan
    if pole or x == 1:
        return np.inf
    if q > 0:
        return zeta_of_positive(x, q)
    fraction = q - np.floor(q)
    steps = zeta_of_positive(x, 1 - fraction) - zeta_of_positive(x, 1 - q)
    return zeta_of_positive(x, fraction) + (steps if np.floor(x * 0.5) * 2 == x else -steps)


@jit
def zeta_of_positive(x: float, q: float) -> float:
    """Sum of :func:`zeta` for positive ``q``: ten terms, then the formula of Euler and Maclaurin."""
    term = math.pow(q, -x)
    total = term
    for _ in range(9):
        q += 1
        term = math.pow(q, -x)
        total += term
    if abs(term) < 2.0**-53 * abs(total):
        return total
    total += term * q / (x - 1) - 0.5 * term
    factor = 1.0
    for k, constant in enumerate(_EULER_MACLAURIN):
        factor *= x + 2 * k
        term /= q
        total += factor * term / constant
        factor *= x + 2 * k + 1
        term /= q
    return total


@jit
def gamma_series(a: float, x: float) -> float:
    """Sum of ``x ** k / ((a + 1) ... (a + k))`` over ``k >= 0``, as long as its terms change it."""
    term = 1.0 if a == a and x == x else np.nan
    total = term
    for k in range(1, _LONGEST_SERIES + 1):
        if not abs(term) > 2.0**-53 * abs(total):
            break
        term *= x / (a + k)
        total += term
    return total


@jit
def gamma_fraction(a: float, x: float) -> float:
    """Legendre's continued fraction of the upper incomplete gamma function, by Lentz's method."""
    b = x + 1 - a
    d = 1 / b
    c, value, factor = np.inf, d, 0.0
    for k in range(1, _LONGEST_SERIES + 1):
        if not abs(factor - 1) > 2.0**-52:
            break
        step = k * (a - k)
        b += 2
        d = 1 / (b + step * d)
        c = b + step / c
        factor = c * d
        value *= factor
    return value


@jit
def three_term(n: float, first: float, a: float, b: float, c: float, d: float, e: float) -> float:
    """Term ``n`` of 1, ``first``, … by ``q[k + 1] = ((a k + b) q[k] - (c + d k) q[k - 1]) / (e k + 1)``.

    In the type of the arguments.
    """
    real = type(first)
    before, value = real(1), first
    if not (n > -1 and n < 2.0**63):
        return real(0)
    if n < 1:
        return before
    for step in range(1, np.int64(n)):
        if value != value:
            break
        k = real(step)
        less = (c + d * k) * before
        before, value = value, fma(fma(a, k, b), value, -less) / (e * k + real(1))
    return value
