"""Special functions that neither Triton nor libdevice has: digamma and the Hurwitz zeta function, in ``float64``."""

SOURCE = """
@triton.jit
def litz_digamma(x):
    value = x.to(tl.float64)
    # reflected where negative: psi(1 - x) - psi(x) = pi cot(pi x)
    mirrored = value < 0.5
    z = tl.where(mirrored, 1.0 - value, value)
    result = z * 0.0
    for _ in range(10):
        small = z < 10.0
        result = result - tl.where(small, 1.0 / z, 0.0)
        z = tl.where(small, z + 1.0, z)
    w = 1.0 / (z * z)
    series = w * (1.0 / 132.0 - w * (691.0 / 32760.0 - w / 12.0))
    series = w * (1.0 / 12.0 - w * (1.0 / 120.0 - w * (1.0 / 252.0 - w * (1.0 / 240.0 - series))))
    result = result + tl.log(z) - 0.5 / z - series
    # pi x, but for multiples of pi, relative to the nearest pole
    part = (value - tl.floor(value + 0.5)) * 3.141592653589793
    reflected = result - 3.141592653589793 * tl.cos(part) / tl.sin(part)
    result = tl.where(mirrored, reflected, result)
    pole = mirrored & (value == tl.floor(value))
    infinity = tl.where(value.to(tl.int64, bitcast=True) < 0, float("inf"), float("-inf"))
    result = tl.where(pole, tl.where(value == 0, infinity, float("nan")), result)
    return tl.where(value == float("inf"), value, result).to(x.dtype)


@triton.jit
def litz_zeta_power(q, x):
    # q is positive
    return tl.where(q == 0, float("inf"), tl.exp(-x * tl.log(q)))


@triton.jit
def litz_zeta_step(total, rising, term, q, y, constant: tl.constexpr):
    rising = rising * y
    term = term / q
    return total + rising * term / constant, rising * (y + 1.0), term / q


@triton.jit
def litz_zeta_of_positive(x, q):
    # ten terms, then the Euler-Maclaurin formula, whose constants are (2k)! over Bernoulli numbers
    terms = litz_zeta_power(q, x)
    term = terms
    for _ in range(9):
        q = q + 1.0
        term = litz_zeta_power(q, x)
        terms = terms + term
    total = terms + term * q / (x - 1.0) - 0.5 * term
    rising = x * 0.0 + 1.0
    total, rising, rest_0 = litz_zeta_step(total, rising, term, q, x + 0.0, 12.0)
    total, rising, rest_1 = litz_zeta_step(total, rising, rest_0, q, x + 2.0, -720.0)
    total, rising, rest_2 = litz_zeta_step(total, rising, rest_1, q, x + 4.0, 30240.0)
    total, rising, rest_3 = litz_zeta_step(total, rising, rest_2, q, x + 6.0, -1209600.0)
    total, rising, rest_4 = litz_zeta_step(total, rising, rest_3, q, x + 8.0, 47900160.0)
    total, rising, rest_5 = litz_zeta_step(total, rising, rest_4, q, x + 10.0, -1892437580.3183792)
    total, rising, rest_6 = litz_zeta_step(total, rising, rest_5, q, x + 12.0, 74724249600.0)
    total, rising, rest_7 = litz_zeta_step(total, rising, rest_6, q, x + 14.0, -2950130727918.164)
    total, rising, rest_8 = litz_zeta_step(total, rising, rest_7, q, x + 16.0, 116467828143500.67)
    return tl.where(tl.abs(term) < tl.abs(terms) * 1.1102230246251565e-16, terms, total)


@triton.jit
def litz_zeta(x, q):
    s = x.to(tl.float64)
    start = q.to(tl.float64)
    below = start < 0
    whole = tl.floor(start)
    fraction = tl.where(below, start - whole, start)
    # the terms from a negative q up to its fractional part are, up to sign, those from 1 - fraction
    steps = litz_zeta_of_positive(s, 1.0 - fraction) - litz_zeta_of_positive(s, 1.0 - start)
    steps = tl.where(tl.floor(s * 0.5) * 2.0 == s, steps, steps * -1.0)
    value = litz_zeta_of_positive(s, fraction) + tl.where(below, steps, 0.0)
    pole = (start <= 0) & (start == whole)
    value = tl.where(pole | (s == 1.0), float("inf"), value)
    value = tl.where((s < 1.0) | (below & (pole == 0) & (s != tl.floor(s))), float("nan"), value)
    return tl.where((s != s) | (start != start), s + start, value).to(x.dtype)
"""
