"""Error functions and ``lgamma``, which replace libdevice in the interpreted form."""

SOURCE = """
@triton.jit
def litz_erfc(x):
    value = x.to(tl.float64)
    z = tl.abs(value)
    # a continued fraction where 1 - erf(x) would cancel (Abramowitz and Stegun 7.1.14)
    fraction = z
    for k in range(60):
        fraction = z + (60 - k) * 0.5 / fraction
    tail = tl.exp(value * value * -1.0) / (fraction * 1.772453850905516)
    tail = tl.where(z > 27.5, 0.0, tail)
    near = 1.0 - tl.erf(value)
    return tl.where(z < 1.5, near, tl.where(value < 0, 2.0 - tail, tail)).to(x.dtype)


@triton.jit
def litz_erfinv(x):
    y = x.to(tl.float64)
    # Winitzki's guess, then Newton's method
    logarithm = litz_log1p_64(y * y * -1.0)
    half = 4.3307467508 + 0.5 * logarithm
    guess = tl.sqrt(tl.sqrt(half * half - logarithm * 6.802721088435375) - half)
    guess = tl.where(y < 0, guess * -1.0, guess)
    for _ in range(4):
        slope = 1.1283791670955126 * tl.exp(guess * guess * -1.0)
        step = (tl.erf(guess) - y) / slope
        guess = guess - step / (1.0 + guess * step)
    guess = tl.where(y == 0, y, guess)
    guess = tl.where(tl.abs(y) == 1.0, y * float("inf"), guess)
    return tl.where(tl.abs(y) > 1.0, float("nan"), guess).to(x.dtype)


@triton.jit
def litz_lgamma_64(z):
    # Lanczos' approximation with g = 7 and nine coefficients, for z >= 0.5
    w = z - 1.0
    total = w * 0.0 + 0.99999999999980993
    total = total + 676.5203681218851 / (w + 1.0) - 1259.1392167224028 / (w + 2.0)
    total = total + 771.32342877765313 / (w + 3.0) - 176.61502916214059 / (w + 4.0)
    total = total + 12.507343278686905 / (w + 5.0) - 0.13857109526572012 / (w + 6.0)
    total = total + 9.9843695780195716e-6 / (w + 7.0) + 1.5056327351493116e-7 / (w + 8.0)
    t = w + 7.5
    return 0.9189385332046727 + (w + 0.5) * tl.log(t) - t + tl.log(total)


@triton.jit
def litz_lgamma(x):
    value = x.to(tl.float64)
    mirrored = value < 0.5
    upper = litz_lgamma_64(tl.where(mirrored, 1.0 - value, value))
    part = (value - tl.floor(value)) * 3.141592653589793
    lower = 1.1447298858494002 - tl.log(tl.abs(tl.sin(part))) - upper
    result = tl.where(mirrored, lower, upper)
    pole = (value <= 0) & (value == tl.floor(value))
    return tl.where(pole | (tl.abs(value) == float("inf")), float("inf"), result).to(x.dtype)
"""
