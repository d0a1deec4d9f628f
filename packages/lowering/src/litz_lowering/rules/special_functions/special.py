"""Special functions as formulas of elementary ones, shared by the code generators and the interpreter.

All branches of a piecewise approximation are computed and one is selected, so the cost does not depend on the
argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from litz_ir.dtypes import f64
from litz_lowering.contexts.context import LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num, where
from litz_lowering.rules.elementwise.pointwise import PointwiseRow, lower_pointwise, row
from litz_lowering.rules.special_functions import cephes
from litz_lowering.rules.special_functions.cephes import Ratio, Series

_ROOT_2_OVER_PI = math.sqrt(2 / math.pi)
_NEGLIGIBLE_IN_F32 = 1e-9
"""Coefficient of a Chebyshev series up to which its term rounds away in ``f32``."""


def _polynomial(x: Num, coefficients: tuple[float, ...]) -> Num:
    """Polynomial by Horner's rule, highest power first."""
    value = x.like(coefficients[0])
    for coefficient in coefficients[1:]:
        value = f.fma(value, x, coefficient)
    return value


def _ratio(x: Num, table: Ratio) -> Num:
    return _polynomial(x, table[0]) / _polynomial(x, table[1])


def _series(x: Num, table: Series) -> Num:
    """Chebyshev series at ``x / 2`` by Clenshaw's sum; ``f32`` leaves out terms that round away."""
    terms = [c for c in table if x.dtype == f64 or abs(c) > _NEGLIGIBLE_IN_F32]
    before, last, value = x.like(0), x.like(0), x.like(terms[0])
    for coefficient in terms[1:]:
        before, last = last, value
        value = f.fma(x, last, coefficient - before)
    return 0.5 * (value - before)


# --- error function and normal distribution ----------------------------------------


def _erfcx(x: Num) -> Num:
    """``exp(x^2) erfc(x)``, by reflection for negative arguments."""
    a = f.absolute(x)
    square = x * x
    near = f.exp(square) * f.unary("erfc")(a)
    inverse = 1.0 / square
    # Fifth convergent of the continued fraction, for x whose powers may overflow.
    beyond = f.fma(inverse, f.fma(inverse, 2.0, 4.5), 1.0) / f.fma(inverse, f.fma(inverse, 3.75, 5.0), 1.0)
    beyond = beyond * (1 / math.sqrt(math.pi)) / a
    far = where(a < 8, _ratio(a, cephes.ERFCX_NEAR), where(a > 50, beyond, _ratio(a, cephes.ERFCX_FAR)))
    right = where(a < 1, near, far)
    left = 2.0 * f.exp(square) - right
    return where(f.isnan(x), x, where(x < 0, where(x < -26.7, math.inf, left), right))


def _ndtri(y: Num) -> Num:
    """Inverse of the normal distribution function."""
    edge = math.exp(-2)
    upper = y > 1 - edge
    tail = where(upper, 1.0 - y, y)
    centred = tail - 0.5
    square = centred * centred
    middle = f.fma(centred, square * _ratio(square, cephes.NDTRI_MIDDLE), centred) * math.sqrt(2 * math.pi)
    x = f.sqrt(-2.0 * f.log(tail))
    z = 1.0 / x
    correction = z * where(x < 8, _ratio(z, cephes.NDTRI_TAIL), _ratio(z, cephes.NDTRI_FAR_TAIL))
    outer = x - f.log(x) / x - correction
    value = where(tail > edge, middle, where(upper, outer, -outer))
    ends = where(y.eq(0), -math.inf, where(y.eq(1), math.inf, value))
    return where((y < 0) | (y > 1), math.nan, ends)


row(_erfcx, "special_erfcx.default")
row(_ndtri, "special_ndtri.default")

# --- polygamma and zeta ----------------------------------------


def _trigamma(x: Num) -> Num:
    """Trigamma: reflection below one half, six steps of the recurrence, then the asymptotic series."""
    mirrored = x < 0.5
    sine = f.unary("sin")(math.pi * x)
    result = where(mirrored, -(math.pi**2) / (sine * sine), x.like(0))
    x = where(mirrored, 1.0 - x, x)
    for _ in range(6):
        result = result + 1.0 / (x * x)
        x = x + 1.0
    w = 1.0 / (x * x)
    bernoulli = 1 / 6 - w * (1 / 30 - w * (1 / 42))
    result = result + (1.0 + 1.0 / (2.0 * x) + w * bernoulli) / x
    return where(mirrored, -result, result)


@rule("aten.polygamma.default")
def polygamma(ctx: LoweringContext, n: int, x: Tensor) -> Tensor:
    """Derivative of order ``n`` of the digamma function."""
    return lower_pointwise(ctx, PointwiseRow(partial(_polygamma, n)), (x,), {})


def _polygamma(n: int, x: Num) -> Num:
    if n < 2:
        return f.unary("digamma")(x) if n == 0 else _trigamma(x)
    factorial = float(math.factorial(n)) if n <= 170 else math.inf
    return (factorial if n % 2 else -factorial) * f.binary("zeta")(x.like(n + 1), x)


row(f.binary("zeta"), "special_zeta.default", "special_zeta.other_scalar", "special_zeta.self_scalar")


# --- modified Bessel functions ----------------------------------------


def _scaled_i(a: Num, near: Series, far: Series) -> Num:
    """``exp(-a)`` times the function at ``a >= 0``; for :data:`cephes.I1_NEAR` the result is multiplied by ``a``."""
    small = _series(a * 0.5 - 2.0, near)
    if near is cephes.I1_NEAR:
        small = small * a
    return where(a <= 8, small, _series(32.0 / a - 2.0, far) / f.sqrt(a))


def _i0(x: Num, *, scaled: bool = False) -> Num:
    a = f.absolute(x)
    value = _scaled_i(a, cephes.I0_NEAR, cephes.I0_FAR)
    return value if scaled else f.exp(a) * value


def _i1(x: Num, *, scaled: bool = False) -> Num:
    a = f.absolute(x)
    value = _scaled_i(a, cephes.I1_NEAR, cephes.I1_FAR)
    value = value if scaled else f.exp(a) * value
    return where(x < 0, -value, value)


def _k(near: Callable[[Num], Num], far: Series, x: Num, *, scaled: bool = False) -> Num:
    small = near(x)
    small = small * f.exp(x) if scaled else small
    large = _series(8.0 / x - 2.0, far) / f.sqrt(x)
    large = large if scaled else f.exp(-x) * large
    value = where(x <= 2, small, large)
    return where(x.eq(0), math.inf, where(x < 0, math.nan, value))


def _k0_near(x: Num) -> Num:
    return _series(x * x - 2.0, cephes.K0_NEAR) - f.log(0.5 * x) * _i0(x)


def _k1_near(x: Num) -> Num:
    return f.log(0.5 * x) * _i1(x) + _series(x * x - 2.0, cephes.K1_NEAR) / x


row(_i0, "i0.default", "special_modified_bessel_i0.default")
row(partial(_i0, scaled=True), "special_i0e.default")
row(_i1, "special_i1.default", "special_modified_bessel_i1.default")
row(partial(_i1, scaled=True), "special_i1e.default")
for _name, _near, _far in (("k0", _k0_near, cephes.K0_FAR), ("k1", _k1_near, cephes.K1_FAR)):
    row(partial(_k, _near, _far), f"special_modified_bessel_{_name}.default")
    row(partial(_k, _near, _far, scaled=True), f"special_scaled_modified_bessel_{_name}.default")

# --- Bessel functions ----------------------------------------


def _far_bessel(x: Num, order: int, *, second_kind: bool) -> Num:
    """Hankel's expansion for arguments above 5."""
    cosines, sines = (
        (cephes.BESSEL_0_COS, cephes.BESSEL_0_SIN)
        if order == 0
        else (cephes.BESSEL_1_COS, cephes.BESSEL_1_SIN)
    )
    z = 5.0 / x
    square = 25.0 / (x * x) if order == 0 else z * z
    p, q = _ratio(square, cosines), z * _ratio(square, sines)
    angle = x - (math.pi / 4 if order == 0 else 3 * math.pi / 4)
    sine, cosine = f.unary("sin")(angle), f.unary("cos")(angle)
    wave = p * sine + q * cosine if second_kind else p * cosine - q * sine
    return wave * _ROOT_2_OVER_PI / f.sqrt(x)


def _j0(x: Num) -> Num:
    a = f.absolute(x)
    square = a * a
    near = (
        (square - 5.78318596294678452118)
        * (square - 30.4712623436620863991)
        * _polynomial(square, cephes.BESSEL_J0[0])
    )
    near = where(a < 1e-5, 1.0 - square * 0.25, near / _polynomial(square, cephes.BESSEL_J0[1]))
    return where(a <= 5, near, _far_bessel(a, 0, second_kind=False))


def _j1(x: Num) -> Num:
    a = where(x < 0, -x, x)
    square = a * a
    near = _ratio(square, cephes.BESSEL_J1) * a * (square - 14.6819706421238932572)
    near = near * (square - 49.2184563216946036703)
    value = where(a <= 5, near, _far_bessel(a, 1, second_kind=False))
    return where(x < 0, -value, value)


def _second_kind(near: Callable[[Num], Num], order: int, x: Num) -> Num:
    value = where(x <= 5, near(x), _far_bessel(x, order, second_kind=True))
    return where(x.eq(0), -math.inf, where(x < 0, math.nan, value))


def _y0_near(x: Num) -> Num:
    return _ratio(x * x, cephes.BESSEL_Y0) + (2 / math.pi) * f.log(x) * _j0(x)


def _y1_near(x: Num) -> Num:
    return x * _ratio(x * x, cephes.BESSEL_Y1) + (2 / math.pi) * (_j1(x) * f.log(x) - 1.0 / x)


def _spherical_j0(x: Num) -> Num:
    square = x * x
    terms = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(6, -1, -1))
    value = where(f.absolute(x) < 0.5, _polynomial(square, terms), f.unary("sin")(x) / x)
    return where(f.isinf(x), 0, value)


row(_j0, "special_bessel_j0.default")
row(_j1, "special_bessel_j1.default")
row(partial(_second_kind, _y0_near, 0), "special_bessel_y0.default")
row(partial(_second_kind, _y1_near, 1), "special_bessel_y1.default")
row(_spherical_j0, "special_spherical_bessel_j0.default")


def _airy(x: Num) -> Num:
    """Airy function: oscillating below -2.09, decaying above 2.09, Maclaurin series between."""
    a = f.absolute(x)
    root = f.sqrt(a)
    zeta = 2.0 * a * root / 3.0
    z = 1.0 / zeta
    square, angle = z * z, zeta + math.pi / 4
    wave = f.unary("sin")(angle) * (1.0 + square * _ratio(square, cephes.AIRY_LEFT_SIN))
    wave = wave - f.unary("cos")(angle) * (z * _ratio(square, cephes.AIRY_LEFT_COS))
    scale = 1 / math.sqrt(math.pi)
    left = scale / f.sqrt(root) * wave
    right = scale * _ratio(z, cephes.AIRY_RIGHT) / (2.0 * f.sqrt(root) * f.exp(zeta))
    value = where(x < -2.09, left, where(x >= 2.09, right, _airy_series(x)))
    return where(f.isinf(x), math.nan, where(x > 103.892, 0, value))


def _airy_series(x: Num) -> Num:
    cube, first, second = x * x * x, [1.0], [1.0]
    for k in range(3, 3 * 15, 3):
        first.append(first[-1] / ((k - 1) * k))
        second.append(second[-1] / (k * (k + 1)))
    even = _polynomial(cube, tuple(reversed(first))) * 0.355028053887817239260
    return even - x * _polynomial(cube, tuple(reversed(second))) * 0.258819403792806798405


row(_airy, "special_airy_ai.default")
