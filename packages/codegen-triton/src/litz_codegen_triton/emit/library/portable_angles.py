"""Trigonometric functions and their inverses, which replace libdevice in the interpreted form."""

SOURCE = """
@triton.jit
def litz_tan(x):
    value = x.to(tl.float64)
    return (tl.sin(value) / tl.cos(value)).to(x.dtype)


@triton.jit
def litz_atan_64(x):
    # three halvings, atan(x) = 2 atan(x / (1 + sqrt(1 + x^2))), then the series
    inverted = tl.abs(x) > 1.0
    z = tl.where(inverted, 1.0 / x, x)
    z = z / (1.0 + tl.sqrt(1.0 + z * z))
    z = z / (1.0 + tl.sqrt(1.0 + z * z))
    z = z / (1.0 + tl.sqrt(1.0 + z * z))
    w = z * z
    series = 1.0 / 17.0 - w * (1.0 / 19.0 - w / 21.0)
    series = 1.0 / 11.0 - w * (1.0 / 13.0 - w * (1.0 / 15.0 - w * series))
    series = 1.0 / 5.0 - w * (1.0 / 7.0 - w * (1.0 / 9.0 - w * series))
    angle = 8.0 * z * (1.0 - w * (1.0 / 3.0 - w * series))
    angle = tl.where(inverted, 1.5707963267948966 - tl.abs(angle), tl.abs(angle))
    return tl.where(x < 0, angle * -1.0, angle)


@triton.jit
def litz_atan(x):
    return litz_atan_64(x.to(tl.float64)).to(x.dtype)


@triton.jit
def litz_asin_64(x):
    # the quotient is infinite at the ends, where its arc tangent is still right
    inside = litz_atan_64(x / tl.sqrt((1.0 - x) * (1.0 + x)))
    return tl.where(tl.abs(x) <= 1.0, inside, float("nan"))


@triton.jit
def litz_asin(x):
    return litz_asin_64(x.to(tl.float64)).to(x.dtype)


@triton.jit
def litz_acos(x):
    value = x.to(tl.float64)
    half = tl.sqrt((1.0 - value) * 0.5)
    return tl.where(value > 0.5, 2.0 * litz_asin_64(half), 1.5707963267948966 - litz_asin_64(value)).to(x.dtype)


@triton.jit
def litz_atan2(y, x):
    a = y.to(tl.float64)
    b = x.to(tl.float64)
    below = a.to(tl.int64, bitcast=True) < 0
    left = b.to(tl.int64, bitcast=True) < 0
    both = (tl.abs(a) == float("inf")) & (tl.abs(b) == float("inf"))
    ratio = tl.where(both, 1.0, tl.abs(a) / tl.abs(b))
    angle = tl.where(a == 0, 0.0, litz_atan_64(ratio))
    angle = tl.where(left, 3.141592653589793 - angle, angle)
    angle = tl.where(below, angle * -1.0, angle)
    return tl.where((a != a) | (b != b), a + b, angle).to(y.dtype)
"""
