"""Triton functions of our own, as text: what a kernel calls is written in front of it.

Two kinds live here: operations that Triton lacks, used in both forms of a kernel, and what stands in for libdevice (and
for conversions that Triton's interpreter gets wrong) in the interpreted form. The latter compute in ``float64`` and
round once, since the interpreter is there to be right, not fast.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

_COMBINE = """
@triton.jit
def litz_mul(a, b):
    return a * b


@triton.jit
def litz_min(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def litz_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def litz_add(a, b):
    return a + b


@triton.jit
def litz_int_min(a, b):
    return tl.minimum(a, b)


@triton.jit
def litz_int_max(a, b):
    return tl.maximum(a, b)


@triton.jit
def litz_xor(a, b):
    return a ^ b


@triton.jit
def litz_argmin(value_a, index_a, value_b, index_b):
    # the first index wins a tie, and NaN wins over numbers
    nan_a = value_a != value_a
    nan_b = value_b != value_b
    tie = (value_a == value_b) | (nan_a & nan_b)
    first = ((value_a < value_b) | (nan_a & (nan_b == 0))) | (tie & (index_a < index_b))
    return tl.where(first, value_a, value_b), tl.where(first, index_a, index_b)


@triton.jit
def litz_argmax(value_a, index_a, value_b, index_b):
    # the first index wins a tie, and NaN wins over numbers
    nan_a = value_a != value_a
    nan_b = value_b != value_b
    tie = (value_a == value_b) | (nan_a & nan_b)
    first = ((value_a > value_b) | (nan_a & (nan_b == 0))) | (tie & (index_a < index_b))
    return tl.where(first, value_a, value_b), tl.where(first, index_a, index_b)


@triton.jit
def litz_welford(mean_a, square_a, count_a, mean_b, square_b, count_b):
    count = count_a + count_b
    share = count_b / tl.where(count == 0.0, 1.0, count)
    delta = mean_b - mean_a
    return mean_a + delta * share, square_a + square_b + delta * delta * count_a * share, count


@triton.jit
def litz_finite_or_zero(x):
    return tl.where(x == float("-inf"), 0.0, x)


@triton.jit
def litz_online_softmax(max_a, sum_a, max_b, sum_b):
    top = tl.maximum(max_a, max_b, propagate_nan=tl.PropagateNan.ALL)
    # where both sides are -inf there is nothing to scale
    base = litz_finite_or_zero(top)
    return top, sum_a * tl.exp(max_a - base) + sum_b * tl.exp(max_b - base)
"""

_ARITHMETIC = """
@triton.jit
def litz_sign(x):
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@triton.jit
def litz_index_floor_div(a, b):
    quotient = a // b
    return tl.where((quotient * b != a) & ((a < 0) != (b < 0)), quotient - 1, quotient)


@triton.jit
def litz_index_floor_mod(a, b):
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def litz_int_floor_div(a, b):
    quotient = a // b
    return tl.where((quotient * b != a) & ((a < 0) != (b < 0)), quotient - 1, quotient)


@triton.jit
def litz_int_remainder(a, b):
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def litz_remainder(a, b):
    rest = litz_fmod(a, b)
    return tl.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)


@triton.jit
def litz_floor_div(a, b):
    rest = litz_fmod(a, b)
    ratio = litz_true_div(a, b)
    quotient = litz_true_div(a - rest, b)
    quotient = tl.where((rest != 0) & ((b < 0) != (rest < 0)), quotient - 1.0, quotient)
    floored = tl.floor(quotient)
    floored = tl.where(quotient - floored > 0.5, floored + 1.0, floored)
    floored = tl.where(quotient == 0, tl.where(ratio < 0, -0.0, 0.0), floored)
    return tl.where(b == 0, ratio, floored)


@triton.jit
def litz_true_div(a, b):
    if a.dtype == tl.float64:
        return a / b
    else:
        return tl.div_rn(a, b)


@triton.jit
def litz_int_pow(base, exponent):
    negative = exponent < 0
    odd = (exponent & 1) != 0
    rest = tl.where(negative, 0, exponent)
    square = base
    result = rest * 0 + 1
    for _ in range(base.dtype.primitive_bitwidth):
        result = tl.where((rest & 1) != 0, result * square, result)
        square = square * square
        rest = rest >> 1
    unit = tl.where(base == 1, 1, tl.where(base + 1 == 0, tl.where(odd, -1, 1), 0))
    return tl.where(negative, unit.to(base.dtype), result)


@triton.jit
def litz_unsigned_pow(base, exponent):
    rest = exponent
    square = base
    result = rest * 0 + 1
    for _ in range(base.dtype.primitive_bitwidth):
        result = tl.where((rest & 1) != 0, result * square, result)
        square = square * square
        rest = rest >> 1
    return result


@triton.jit
def litz_gcd(a, b):
    # Euclid's steps are the most for neighbours in Fibonacci's row: 1.44 for each bit
    for _ in range(a.dtype.primitive_bitwidth + a.dtype.primitive_bitwidth // 2):
        rest = b % tl.where(a == 0, 1, a)
        b = tl.where(a == 0, b, a)
        a = tl.where(a == 0, a, rest)
    return b


@triton.jit
def litz_fmin(a, b):
    return tl.where(a != a, b, tl.where((b != b) | (a < b), a, b))


@triton.jit
def litz_fmax(a, b):
    return tl.where(a != a, b, tl.where((b != b) | (a > b), a, b))


@triton.jit
def litz_shift_left(x, by):
    inside = (by >= 0) & (by < x.dtype.primitive_bitwidth)
    return tl.where(inside, x << tl.where(inside, by, 0), x * 0)


@triton.jit
def litz_shift_right(x, by):
    inside = (by >= 0) & (by < x.dtype.primitive_bitwidth)
    return x >> tl.where(inside, by, x.dtype.primitive_bitwidth - 1)


@triton.jit
def litz_unsigned_shift_right(x, by):
    inside = by < x.dtype.primitive_bitwidth
    return tl.where(inside, x >> tl.where(inside, by, 0), x * 0)


@triton.jit
def litz_copysign(x, sign, bits: tl.constexpr, place: tl.constexpr):
    shifted = (sign.to(bits, bitcast=True) >> place) << place
    magnitude = tl.abs(x).to(bits, bitcast=True)
    return (magnitude | shifted).to(x.dtype, bitcast=True)


@triton.jit
def litz_nextafter(x, y, bits: tl.constexpr, step: tl.constexpr):
    code = x.to(bits, bitcast=True)
    # away from zero the codes grow with the magnitude
    outward = (x < y) == (code >= 0)
    moved = (code + tl.where(outward, step, -step)).to(bits).to(x.dtype, bitcast=True)
    smallest = (code * 0 + step).to(bits).to(x.dtype, bitcast=True)
    moved = tl.where(x == 0, tl.where(y < 0, smallest * -1.0, smallest), moved)
    return tl.where((x != x) | (y != y), x + y, tl.where(x == y, y, moved))


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
    part = (value - tl.floor(value)) * 3.141592653589793
    reflected = result - 3.141592653589793 * tl.cos(part) / tl.sin(part)
    result = tl.where(mirrored, reflected, result)
    pole = mirrored & (value == tl.floor(value))
    infinity = tl.where(value.to(tl.int64, bitcast=True) < 0, float("inf"), float("-inf"))
    result = tl.where(pole, tl.where(value == 0, infinity, float("nan")), result)
    return tl.where(value == float("inf"), value, result).to(x.dtype)
"""

_ZETA = """
@triton.jit
def litz_zeta_power(q, x):
    # q is positive
    return tl.where(q == 0, float("inf"), tl.exp(-x * tl.log(q)))


@triton.jit
def litz_zeta_step(total, factor, term, q, y, constant: tl.constexpr):
    factor = factor * y
    term = term / q
    return total + factor * term / constant, factor * (y + 1.0), term / q


@triton.jit
def litz_zeta_of_positive(x, q):
    # ten terms, then Euler and Maclaurin's formula, whose constants are (2k)! over Bernoulli's numbers
    terms = litz_zeta_power(q, x)
    term = terms
    for _ in range(9):
        q = q + 1.0
        term = litz_zeta_power(q, x)
        terms = terms + term
    total = terms + term * q / (x - 1.0) - 0.5 * term
    factor = x * 0.0 + 1.0
    total, factor, rest_0 = litz_zeta_step(total, factor, term, q, x + 0.0, 12.0)
    total, factor, rest_1 = litz_zeta_step(total, factor, rest_0, q, x + 2.0, -720.0)
    total, factor, rest_2 = litz_zeta_step(total, factor, rest_1, q, x + 4.0, 30240.0)
    total, factor, rest_3 = litz_zeta_step(total, factor, rest_2, q, x + 6.0, -1209600.0)
    total, factor, rest_4 = litz_zeta_step(total, factor, rest_3, q, x + 8.0, 47900160.0)
    total, factor, rest_5 = litz_zeta_step(total, factor, rest_4, q, x + 10.0, -1892437580.3183792)
    total, factor, rest_6 = litz_zeta_step(total, factor, rest_5, q, x + 12.0, 74724249600.0)
    total, factor, rest_7 = litz_zeta_step(total, factor, rest_6, q, x + 14.0, -2950130727918.164)
    total, factor, rest_8 = litz_zeta_step(total, factor, rest_7, q, x + 16.0, 116467828143500.67)
    return tl.where(tl.abs(term) < tl.abs(terms) * 1.1102230246251565e-16, terms, total)


@triton.jit
def litz_zeta(x, q):
    s = x.to(tl.float64)
    start = q.to(tl.float64)
    below = start < 0
    whole = tl.floor(start)
    fraction = tl.where(below, start - whole, start)
    # the terms of the steps from a negative start up to its fraction mirror those from 1 - fraction
    steps = litz_zeta_of_positive(s, 1.0 - fraction) - litz_zeta_of_positive(s, 1.0 - start)
    steps = tl.where(tl.floor(s * 0.5) * 2.0 == s, steps, steps * -1.0)
    value = litz_zeta_of_positive(s, fraction) + tl.where(below, steps, 0.0)
    pole = (start <= 0) & (start == whole)
    value = tl.where(pole | (s == 1.0), float("inf"), value)
    value = tl.where((s < 1.0) | (below & (pole == 0) & (s != tl.floor(s))), float("nan"), value)
    return tl.where((s != s) | (start != start), s + start, value).to(x.dtype)
"""

_RANDOM = """
@triton.jit
def litz_philox(seed, counter):
    low = (counter & 0xFFFFFFFF).to(tl.uint32)
    high = ((counter >> 32) & 0xFFFFFFFF).to(tl.uint32)
    return tl.philox(seed, low, high, low * 0, low * 0)


@triton.jit
def litz_unit64(high, low):
    return (((high.to(tl.uint64) << 32) | low.to(tl.uint64)) >> 11).to(tl.float64) * 1.1102230246251565e-16


@triton.jit
def litz_random_uniform(seed, counter, digits: tl.constexpr):
    w0, w1, w2, w3 = litz_philox(seed, counter)
    return (w0 >> (32 - digits)).to(tl.float32) * (1.0 / (1 << digits))


@triton.jit
def litz_random_uniform64(seed, counter):
    w0, w1, w2, w3 = litz_philox(seed, counter)
    return litz_unit64(w1, w0)


@triton.jit
def litz_random_normal(seed, counter):
    w0, w1, w2, w3 = litz_philox(seed, counter)
    # 1 - u is exact and never zero
    u = 1.0 - (w0 >> 8).to(tl.float32) * 5.9604644775390625e-08
    v = (w1 >> 8).to(tl.float32) * 5.9604644775390625e-08
    return tl.sqrt_rn(-2.0 * tl.log(u)) * tl.cos(v * 6.283185307179586)


@triton.jit
def litz_random_normal64(seed, counter):
    w0, w1, w2, w3 = litz_philox(seed, counter)
    return tl.sqrt(-2.0 * tl.log(1.0 - litz_unit64(w1, w0))) * tl.cos(litz_unit64(w3, w2) * 6.283185307179586)


@triton.jit
def litz_random_bits(seed, counter):
    w0, w1, w2, w3 = litz_philox(seed, counter)
    return w0


@triton.jit
def litz_random_bits64(seed, counter):
    w0, w1, w2, w3 = litz_philox(seed, counter)
    return (w1.to(tl.uint64) << 32) | w0.to(tl.uint64)
"""

_NARROW_FLOATS = """
@triton.jit
def litz_bf16_bits(x):
    bits = x.to(tl.uint32, bitcast=True)
    # adding just under half of the last kept bit, plus that bit, rounds ties to even
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return tl.where(x != x, 0x7FC0, rounded).to(tl.uint16)


@triton.jit
def litz_bf16_value(bits):
    return (bits.to(tl.uint32) << 16).to(tl.float32, bitcast=True)


@triton.jit
def litz_fp8_bits(x, mantissa: tl.constexpr, bias: tl.constexpr, largest: tl.constexpr, overflow: tl.constexpr):
    bits = x.to(tl.uint32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    shift: tl.constexpr = 23 - mantissa
    normal = (magnitude + ((1 << (shift - 1)) - 1) + ((magnitude >> shift) & 1)) >> shift
    normal = normal - ((127 - bias) << mantissa)
    # below the normal range: adding a power of two leaves the right number of digits
    magic: tl.constexpr = 2.0 ** (24 - bias - mantissa)
    denormal = (tl.abs(x) + magic).to(tl.uint32, bitcast=True) - ((151 - bias - mantissa) << 23)
    code = tl.where(magnitude < ((128 - bias) << 23), denormal, normal)
    code = tl.where(code > largest, overflow, code)
    code = tl.where(magnitude > 0x7F800000, 0x7F, code | ((bits >> 24) & 0x80))
    return code.to(tl.uint8)


@triton.jit
def litz_fp8_value(code, mantissa: tl.constexpr, bias: tl.constexpr, largest: tl.constexpr):
    bits = code.to(tl.uint32)
    magnitude = bits & 0x7F
    # the code's fields, moved into place, are a float that is a power of two too small
    scale: tl.constexpr = 2.0 ** (127 - bias)
    value = (magnitude << (23 - mantissa)).to(tl.float32, bitcast=True) * scale
    if mantissa == 2:
        value = tl.where(magnitude == 0x7C, float("inf"), value)
        value = tl.where(magnitude > 0x7C, float("nan"), value)
    else:
        value = tl.where(magnitude > largest, float("nan"), value)
    return tl.where((bits & 0x80) != 0, value * -1.0, value)
"""

_PORTABLE = """
@triton.jit
def litz_trunc(x):
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))


@triton.jit
def litz_round(x):
    down = tl.floor(x)
    rest = x - down
    odd = tl.floor(down * 0.5) * 2.0 != down
    rounded = tl.where((rest > 0.5) | ((rest == 0.5) & odd), down + 1.0, down)
    # keep the sign of what rounds to zero
    rounded = tl.where((rounded == 0) & (x < 0), -0.0, rounded)
    return tl.where((x == 0) | (rest != rest), x, rounded)


@triton.jit
def litz_fmod(x, y):
    return x % y


@triton.jit
def litz_pow(x, y):
    base = x.to(tl.float64)
    exponent = y.to(tl.float64)
    magnitude = tl.exp2(exponent * tl.log2(tl.abs(base)))
    whole = exponent == tl.floor(exponent)
    odd = whole & (tl.floor(exponent * 0.5) * 2.0 != exponent)
    negative = base.to(tl.int64, bitcast=True) < 0
    result = tl.where(negative & odd, magnitude * -1.0, magnitude)
    finite = tl.abs(base) != float("inf")
    result = tl.where((base < 0) & finite & (whole == 0), float("nan"), result)
    one = (exponent == 0) | (base == 1.0) | ((base == -1.0) & (tl.abs(exponent) == float("inf")))
    return tl.where(one, 1.0, result).to(x.dtype)


@triton.jit
def litz_hypot(x, y):
    a = tl.abs(x.to(tl.float64))
    b = tl.abs(y.to(tl.float64))
    top = tl.maximum(a, b)
    scale = tl.where((top == 0) | (top == float("inf")), 1.0, top)
    result = scale * tl.sqrt((a / scale) * (a / scale) + (b / scale) * (b / scale))
    return tl.where(top == float("inf"), top, result).to(x.dtype)


@triton.jit
def litz_expm1_64(x):
    # with u = exp(x), (u - 1) x / log(u) is accurate near zero (Kahan)
    u = tl.exp(x)
    small = (u - 1.0) * x / tl.log(u)
    result = tl.where((u == 1.0) | (u == float("inf")), x, small)
    return tl.where(u < 1e-9, u - 1.0, result)


@triton.jit
def litz_log1p_64(x):
    u = 1.0 + x
    near = tl.log(u) * x / (u - 1.0)
    result = tl.where((u == 1.0), x, near)
    return tl.where(x == float("inf"), x, tl.where(u == 0.0, float("-inf"), result))


@triton.jit
def litz_expm1(x):
    return litz_expm1_64(x.to(tl.float64)).to(x.dtype)


@triton.jit
def litz_log1p(x):
    return litz_log1p_64(x.to(tl.float64)).to(x.dtype)


@triton.jit
def litz_log10(x):
    return (tl.log(x.to(tl.float64)) * 0.4342944819032518).to(x.dtype)


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


@triton.jit
def litz_sinh(x):
    value = litz_expm1_64(tl.abs(x.to(tl.float64)))
    result = 0.5 * (value + value / (value + 1.0))
    result = tl.where(value == float("inf"), value, result)
    return tl.where(x < 0, result * -1.0, result).to(x.dtype)


@triton.jit
def litz_cosh(x):
    value = tl.exp(tl.abs(x.to(tl.float64)))
    return (0.5 * (value + 1.0 / value)).to(x.dtype)


@triton.jit
def litz_tanh(x):
    value = litz_expm1_64(-2.0 * tl.abs(x.to(tl.float64)))
    result = (value * -1.0) / (value + 2.0)
    return tl.where(x < 0, result * -1.0, result).to(x.dtype)


@triton.jit
def litz_asinh(x):
    value = tl.abs(x.to(tl.float64))
    near = litz_log1p_64(value + value * value / (1.0 + tl.sqrt(value * value + 1.0)))
    far = tl.log(value) + 0.6931471805599453
    result = tl.where(value > 1e9, far, near)
    return tl.where(x < 0, result * -1.0, result).to(x.dtype)


@triton.jit
def litz_acosh(x):
    value = x.to(tl.float64)
    above = value - 1.0
    near = litz_log1p_64(above + tl.sqrt(above * (value + 1.0)))
    return tl.where(value > 1e9, tl.log(value) + 0.6931471805599453, near).to(x.dtype)


@triton.jit
def litz_atanh(x):
    value = tl.abs(x.to(tl.float64))
    result = 0.5 * litz_log1p_64(2.0 * value / (1.0 - value))
    result = tl.where(value == 1.0, float("inf"), result)
    return tl.where(x < 0, result * -1.0, result).to(x.dtype)


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


def _split(*texts: str) -> dict[str, str]:
    functions: dict[str, str] = {}
    for text in texts:
        for part in text.strip().split("\n\n\n"):
            functions[part.split("def ", 1)[1].split("(", 1)[0]] = part
    return functions


FUNCTIONS: Mapping[str, str] = MappingProxyType(
    _split(_COMBINE, _ARITHMETIC, _ZETA, _RANDOM, _NARROW_FLOATS, _PORTABLE)
)
"""The source of each function by name, its ``@triton.jit`` included."""

COMPILED_FUNCTIONS: Mapping[str, str] = MappingProxyType(
    {
        "litz_fmod": "@triton.jit\ndef litz_fmod(x, y):\n    return libdevice.fmod(x, y)",
    }
)
"""What the compiled form has instead of the function of the same name."""

_CALL = re.compile(r"\blitz_\w+")


def called(text: str) -> tuple[str, ...]:
    """The functions of the library that ``text`` calls, each once, in order of appearance."""
    return tuple(dict.fromkeys(name for name in _CALL.findall(text) if name in FUNCTIONS))


def library_source(names: Iterable[str], *, compiled: bool) -> tuple[str, ...]:
    """The source of functions and of all that they call, callees first; deterministic."""
    done: dict[str, str] = {}

    def visit(name: str) -> None:
        if name in done:
            return
        text = COMPILED_FUNCTIONS.get(name, FUNCTIONS[name]) if compiled else FUNCTIONS[name]
        for other in called(text):
            if other != name:
                visit(other)
        done[name] = text

    for name in sorted(names):
        visit(name)
    return tuple(done.values())
