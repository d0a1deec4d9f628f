"""Elementary functions of complex numbers.

Inverse functions follow W. Kahan, "Branch cuts for complex elementary functions" (1987). Values at infinities are
those of C99, annex G, where eager's are.
"""

from __future__ import annotations

import math

from litz_ir.dtypes import f64
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num, where
from litz_lowering.rules.complex.numbers import Cx, choose

_copysign = f.binary("copysign")
_HALF_PI = math.pi / 2


def times_i(z: Cx) -> Cx:
    """``i * z``."""
    return Cx(-z.im, z.re)


def times_minus_i(z: Cx) -> Cx:
    """``-i * z``."""
    return Cx(z.im, -z.re)


def _is_not_finite(x: Num) -> Num:
    """True for NaN and infinities."""
    return f.isnan(x) | f.isinf(x)


def exp(z: Cx) -> Cx:
    """``e ** z``."""
    # Multiply by the root twice: the result may be finite where exp(z.re) overflows.
    root = f.exp(z.re * 0.5)
    real = root * f.unary("cos")(z.im) * root
    imaginary = where(z.im.eq(0), z.im, root * f.unary("sin")(z.im) * root)
    # Without an angle the magnitude decides: zero at minus infinity, infinity with undefined sign at infinity.
    is_zero, is_infinite = _is_not_finite(z.im) & z.re.eq(-math.inf), _is_not_finite(z.im) & z.re.eq(math.inf)
    real = where(is_zero, 0.0, where(is_infinite, math.inf, real))
    return Cx(real, where(is_zero, 0.0, imaginary))


def exp2(z: Cx) -> Cx:
    """``2 ** z``."""
    return exp(z.times(math.log(2.0)))


def expm1(z: Cx) -> Cx:
    """``e ** z - 1``, accurate near zero."""
    half = f.unary("sin")(z.im * 0.5)
    real = f.expm1(z.re) * f.unary("cos")(z.im) - half * half * 2.0
    return Cx(real, f.exp(z.re) * f.unary("sin")(z.im))


def log(z: Cx) -> Cx:
    """Principal natural logarithm."""
    return Cx(f.log(z.magnitude), z.phase)


def log1p(z: Cx) -> Cx:
    """Principal logarithm of ``1 + z``, accurate near zero."""
    moved = Cx(z.re + 1.0, z.im)
    near = f.absolute(z.re) + f.absolute(z.im) < 0.5
    small = f.log1p(z.re * (z.re + 2.0) + z.im * z.im) * 0.5
    return Cx(where(near, small, f.log(moved.magnitude)), moved.phase)


def log2(z: Cx) -> Cx:
    """Principal logarithm to base 2."""
    return log(z).times(1.0 / math.log(2.0))


def log10(z: Cx) -> Cx:
    """Principal logarithm to base 10."""
    return log(z).times(1.0 / math.log(10.0))


def sqrt(z: Cx) -> Cx:
    """Principal square root."""
    across, along = f.absolute(z.re), f.absolute(z.im)
    large = f.maximum(across, along) > 2.0 ** (100 if z.re.dtype.bits == 32 else 1000)
    small = f.maximum(across, along) < 2.0 ** (-100 if z.re.dtype.bits == 32 else -1000)
    scale = where(large, 0.0625, where(small, 2.0**40, z.re.like(1.0)))
    back = where(large, 4.0, where(small, 2.0**-20, z.re.like(1.0)))
    size = f.sqrt((across * scale + f.binary("hypot")(across * scale, along * scale)) * 0.5)
    other = where(size.eq(0), along, along * scale / (size * 2.0))
    is_right = z.re >= 0
    real, imaginary = where(is_right, size, other) * back, where(is_right, other, size) * back
    found = Cx(real, _copysign(imaginary, z.im))
    found = choose(
        z.re.eq(math.inf) & ~f.isinf(z.im), Cx(z.re, where(f.isnan(z.im), z.im, z.im * 0.0)), found
    )
    negative_infinity = Cx(where(f.isnan(z.im), z.im, z.re.like(0.0)), _copysign(z.re.like(math.inf), z.im))
    found = choose(z.re.eq(-math.inf) & ~f.isinf(z.im), negative_infinity, found)
    return choose(f.isinf(z.im), Cx(z.re.like(math.inf), z.im), found)


def reciprocal(z: Cx) -> Cx:
    """``1 / z``."""
    return z.literal(1.0) / z


def rsqrt(z: Cx) -> Cx:
    """``1 / sqrt(z)``, with the principal root."""
    return reciprocal(sqrt(z))


def sigmoid(z: Cx) -> Cx:
    """``1 / (1 + exp(-z))``."""
    return reciprocal(exp(-z) + z.literal(1.0))


def silu(z: Cx) -> Cx:
    """``z / (1 + exp(-z))``."""
    return z / (exp(-z) + z.literal(1.0))


def sgn(z: Cx) -> Cx:
    """Number of magnitude 1 in the direction of z; zero at zero."""
    size = z.magnitude
    return choose(size.eq(0), z.literal(0.0), Cx(z.re / size, z.im / size))


def power(z: Cx, w: Cx) -> Cx:
    """``z ** w``, computed in ``f64`` because rounding errors of the logarithm grow with the power."""
    dtype = z.re.dtype
    base, exponent = (Cx(each.re.to(f64), each.im.to(f64)) for each in (z, w))
    found = exp(exponent * log(base))
    return Cx(found.re.to(dtype), found.im.to(dtype))


# --- trigonometry ----------------------------------------


def sinh(z: Cx) -> Cx:
    """Hyperbolic sine."""
    is_undefined = f.isinf(z.re) & _is_not_finite(z.im)
    real = where(
        z.re.eq(0),
        z.re,
        where(is_undefined, f.absolute(z.re), _hyperbolic_times("sinh", z.re, f.unary("cos")(z.im))),
    )
    return Cx(real, where(z.im.eq(0), z.im, _hyperbolic_times("cosh", z.re, f.unary("sin")(z.im))))


def _hyperbolic_times(name: str, x: Num, factor: Num) -> Num:
    """Hyperbolic function of ``x`` times ``factor``, without overflow where the result is finite."""
    root = f.exp(f.absolute(x) * 0.5)
    far = root * (factor * 0.5) * root
    return where(
        f.absolute(x) > 40.0,
        far * _copysign(x.like(1.0), x) if name == "sinh" else far,
        f.unary(name)(x) * factor,
    )


def cosh(z: Cx) -> Cx:
    """Hyperbolic cosine."""
    is_undefined = f.isinf(z.re) & _is_not_finite(z.im)
    flat = where(_is_not_finite(z.im), 0.0, z.im * _copysign(z.re.like(1.0), z.re))
    imaginary = _hyperbolic_times("sinh", z.re, f.unary("sin")(z.im))
    imaginary = where(z.im.eq(0) | (z.re.eq(0) & _is_not_finite(z.im)), flat, imaginary)
    return Cx(
        where(is_undefined, f.absolute(z.re), _hyperbolic_times("cosh", z.re, f.unary("cos")(z.im))),
        imaginary,
    )


def tanh(z: Cx) -> Cx:
    """Hyperbolic tangent."""
    tangent, size = f.unary("tan")(z.im), f.unary("sinh")(z.re)
    slope = tangent * tangent + 1.0
    below = slope * size * size + 1.0
    real = slope * f.sqrt(size * size + 1.0) * size / below
    far = f.absolute(z.re) > (11.0 if z.re.dtype.bits == 32 else 22.0)
    fading = f.exp(f.absolute(z.re) * -2.0) * f.unary("sin")(z.im * 2.0) * 2.0
    is_infinite = f.isinf(z.re)
    limit = _copysign(z.re.like(1.0), z.re)
    asymptotic = Cx(
        where(is_infinite, limit, limit + z.im * 0.0), where(is_infinite & _is_not_finite(z.im), 0.0, fading)
    )
    return choose(
        far, asymptotic, Cx(where(z.re.eq(0), z.re, real), where(z.im.eq(0), z.im, tangent / below))
    )


def sin(z: Cx) -> Cx:
    """Sine."""
    return times_minus_i(sinh(times_i(z)))


def cos(z: Cx) -> Cx:
    """Cosine."""
    return cosh(times_i(z))


def tan(z: Cx) -> Cx:
    """Tangent."""
    return times_minus_i(tanh(times_i(z)))


# --- inverse trigonometry ----------------------------------------


def _is_far(z: Cx) -> Num:
    """True where the inverse functions equal a logarithm of 2z to the last digit."""
    return z.magnitude > 2.0 ** (13 if z.re.dtype.bits == 32 else 28)


def _far_log(z: Cx) -> Num:
    """Logarithm of twice the absolute value."""
    return f.log(z.magnitude) + math.log(2.0)


def _roots(z: Cx) -> tuple[Cx, Cx]:
    """Square roots of ``1 - z`` and ``1 + z``."""
    return sqrt(Cx(1.0 - z.re, -z.im)), sqrt(Cx(1.0 + z.re, z.im))


def asin(z: Cx) -> Cx:
    """Inverse sine."""
    low, high = _roots(z)
    crossed = low.conjugate * high
    real = where(z.re.eq(0), z.re, f.binary("atan2")(z.re, (low * high).re))
    across, along = f.absolute(z.re), f.absolute(z.im)
    distant = Cx(_copysign(f.binary("atan2")(across, along), z.re), _copysign(_far_log(z), z.im))
    return choose(_is_far(z), distant, Cx(real, f.unary("asinh")(crossed.im)))


def acos(z: Cx) -> Cx:
    """Inverse cosine."""
    low, high = _roots(z)
    crossed = high.conjugate * low
    real = where(z.re.eq(0), _HALF_PI, f.binary("atan2")(low.re, high.re) * 2.0)
    distant = Cx(f.binary("atan2")(f.absolute(z.im), z.re), _copysign(_far_log(z), -z.im))
    return choose(_is_far(z), distant, Cx(real, f.unary("asinh")(crossed.im)))


def asinh(z: Cx) -> Cx:
    """Inverse hyperbolic sine."""
    return times_minus_i(asin(times_i(z)))


def acosh(z: Cx) -> Cx:
    """Inverse hyperbolic cosine."""
    low, high = sqrt(Cx(z.re - 1.0, z.im)), sqrt(Cx(z.re + 1.0, z.im))
    crossed = low.conjugate * high
    imaginary = where(z.re.eq(0) & f.isnan(z.im), _HALF_PI, f.binary("atan2")(low.im, high.re) * 2.0)
    distant = Cx(_far_log(z), z.phase)
    return choose(_is_far(z), distant, Cx(f.unary("asinh")(crossed.re), imaginary))


def atanh(z: Cx) -> Cx:
    """Inverse hyperbolic tangent."""
    across = f.absolute(z.re)
    above, gap = z.im * z.im, 1.0 - across
    distance_to_one = f.binary("hypot")(gap, z.im)
    near = (f.log(f.binary("hypot")(across + 1.0, z.im)) - f.log(distance_to_one)) * 0.5
    real = where(distance_to_one < 2.0**-10, near, f.log1p(across * 4.0 / (gap * gap + above)) * 0.25)
    real = _copysign(real, z.re)
    imaginary = f.binary("atan2")(z.im * 2.0, gap * (across + 1.0) - above) * 0.5
    size = z.magnitude
    fading = where(f.isinf(size), _copysign(z.re.like(0.0), z.re), z.re / size / size)
    distant = Cx(fading, where(f.isnan(z.im), z.im, _copysign(z.im.like(_HALF_PI), z.im)))
    return choose(size > 2.0**60, distant, Cx(where(z.re.eq(0), z.re, real), imaginary))


def atan(z: Cx) -> Cx:
    """Inverse tangent."""
    return times_minus_i(atanh(times_i(z)))
