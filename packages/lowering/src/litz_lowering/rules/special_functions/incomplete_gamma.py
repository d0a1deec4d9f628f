"""Regularised incomplete gamma functions, in ``f64``: series, continued fraction and Temme's expansion.

``P(a, x) = x^a e^-x S(a, x) / Gamma(a + 1)`` with the power series ``S``; beyond ``a``, ``Q(a, x) = 1 - P(a, x) =
x^a e^-x F(a, x) / Gamma(a)`` with the continued fraction ``F`` (DLMF 8.7.1 and 8.9.2). Both converge slowly near
a large ``a``, where the uniform expansion of DLMF 8.12 is used.
"""

from __future__ import annotations

import math
from functools import partial

from litz_ir.dtypes import DType, f32, f64
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num, where
from litz_lowering.rules.elementwise.pointwise import row

_LARGE = 200
"""Value of ``a`` above which Stirling's series gives the gamma function, and the expansion is used within 4.5
deviations of ``a``."""

_SHIFT = 10
"""Steps of the recurrence from smaller ``a`` to Stirling's series."""

_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
"""The series of DLMF 5.11.1 by powers of ``1 / z^2``, times ``1 / z``; the error is 1e-15 above :data:`_SHIFT`."""

_TEMME = (
    (
        -0.3333333333333333, 0.08333333333333333, -0.014814814814814815, 0.0011574074074074073, 0.0003527336860670194,
        -0.0001787551440329218, 3.919263178522438e-05, -2.185448510679992e-06, -1.85406221071516e-06,
        8.296711340953087e-07, -1.7665952736826078e-07, 6.707853543401498e-09,
    ),
    (
        -0.001851851851851852, -0.003472222222222222, 0.0026455026455026454, -0.0009902263374485596,
        0.00020576131687242798, -4.018775720164609e-07, -1.8098550334489977e-05, 7.64916091608111e-06,
        -1.6120900894563446e-06,
    ),
    (
        0.004133597883597883, -0.0026813271604938273, 0.0007716049382716049, 2.0093878600823047e-06,
        -0.0001073665322636516, 5.2923448829120125e-05, -1.2760635188618728e-05,
    ),
    (
        0.0006494341563786008, 0.00022947209362139917, -0.0004691894943952557, 0.00026772063206283885,
        -7.561801671883977e-05,
    ),
    (-0.0008618882909167117, 0.0007840392217200666, -0.0002990724803031902),
)  # fmt: skip
"""Taylor coefficients of DLMF 8.12.11 by powers of ``1 / a``, then of ``eta``; the error is 3e-14 above 200."""


def _in_powers(x: Num, coefficients: tuple[float | Num, ...]) -> Num:
    """Polynomial by Horner's rule, lowest power first."""
    value = x.like(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = f.fma(value, x, coefficient)
    return value


def _less_log1p(m: Num) -> Num:
    """``m - log(1 + m)``, by its series where the difference would cancel."""
    series = _in_powers(m, tuple((-1) ** k / k for k in range(2, 10)))
    return where(f.absolute(m) < 0.01, m * m * series, m - f.log1p(m))


def _weight(a: Num, x: Num, distance: Num) -> tuple[Num, Num]:
    """``x^a e^-x / Gamma(a + 1)`` and Stirling's series in it; ``distance`` is :func:`_less_log1p` of
    ``(x - a) / a``."""
    large = a > _LARGE
    product = a + 1.0
    for k in range(2, _SHIFT):
        product = product * (a + float(k))
    z = where(large, a, a + float(_SHIFT))
    inverse = 1.0 / z
    stirling = inverse * _in_powers(inverse * inverse, _STIRLING)
    log = f.log(z)
    exponent = where(large, -a * distance - 0.5 * log, a * f.log(x) - x - (z - 0.5) * log + z)
    return f.exp(exponent - 0.5 * math.log(2 * math.pi) - stirling) * where(large, 1.0, product), stirling


def _regularised(a: Num, x: Num, *, upper: bool) -> Num:
    dtype = a.dtype
    a, x = a.to(f64), x.to(f64)
    m = (x - a) / a
    distance = _less_log1p(m)
    near = (a > _LARGE) & (m * m * a < 4.5**2)
    far = ~near & (x >= a) & (x > 1.1)
    # Where a branch is not selected, its arguments make it converge at once. Fewer terms count for a narrow result.
    series = _in(dtype, "gamma_series", a, where(near | far, 0, x))
    fraction = _in(dtype, "gamma_fraction", where(far, a, 1), where(far, x, 1))
    weight, stirling = _weight(a, x, distance)
    below, above = weight * series, weight * a * fraction
    if upper:
        small = (x <= 1.1) & (a <= _LARGE)
        value = where(far, above, where(small, _upper_of_small(where(small, a, 1), x), 1.0 - below))
    else:
        value = where(far, 1.0 - above, below)
    density = weight * _in_powers(stirling, (1.0, 1.0, 1 / 2, 1 / 6))
    value = where(near, _temme(a, m, distance, density, upper=upper), value)
    return _ends(a, x, value, upper=upper).to(dtype)


def _in(dtype: DType, name: str, a: Num, x: Num) -> Num:
    """An operation in ``f64``, or in ``f32`` if ``dtype`` is narrower."""
    narrow = dtype if dtype == f64 else f32
    return f.binary(name)(a.to(narrow), x.to(narrow)).to(f64)


def _upper_of_small(a: Num, x: Num) -> Num:
    """``Q`` by the alternating series of ``P`` without its first term (DLMF 8.7.1), which does not cancel for
    small ``a``, as one fraction."""
    power = x * -1.0
    above, below = power, a + 1.0
    for k in range(2, 19):
        power = power * (x * (-1 / k))
        above = f.fma(above, a + float(k), power * below)
        below = below * (a + float(k))
    weight = a * f.log(x) - f.unary("lgamma")(a + 1.0)
    return -f.expm1(weight) - f.exp(weight) * a * (above / below)


def _temme(a: Num, m: Num, distance: Num, density: Num, *, upper: bool) -> Num:
    """DLMF 8.12.3 and 8.12.4; ``density`` is ``exp(-a distance) / sqrt(2 pi a)``."""
    eta = f.sqrt(2.0 * distance)
    eta = where(m < 0, -eta, eta)
    sums = tuple(_in_powers(eta, coefficients) for coefficients in _TEMME)
    correction = density * _in_powers(1.0 / a, sums)
    scaled = eta * f.sqrt(a * 0.5)
    if upper:
        return 0.5 * f.unary("erfc")(scaled) + correction
    return 0.5 * f.unary("erfc")(-scaled) - correction


def _ends(a: Num, x: Num, value: Num, *, upper: bool) -> Num:
    """``value`` with eager's limits at zero and infinity, and NaN for negative arguments."""
    everything, nothing = (0.0, 1.0) if upper else (1.0, 0.0)
    value = where(f.isinf(x), everything, value)
    value = where(f.isinf(a), where(f.isinf(x), math.nan, x.like(nothing)), value)
    value = where(x.eq(0), nothing, value)
    value = where(a.eq(0), where(x > 0, everything, x.like(math.nan)), value)
    return where((a < 0) | (x < 0), math.nan, value)


row(partial(_regularised, upper=False), "igamma.default")
row(partial(_regularised, upper=True), "igammac.default")
