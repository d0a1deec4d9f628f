"""Division, remainders and powers with the edge cases of eager PyTorch, for both forms of a kernel."""

SOURCE = """
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
    # multiplied, since constants that compare equal to zero are +0.0
    floored = tl.where(quotient == 0, ratio * 0.0, floored)
    return tl.where(b == 0, ratio, floored)


@triton.jit
def litz_true_div(a, b):
    if a.dtype == tl.float64:
        return a / b
    else:
        return tl.div_rn(a, b)


@triton.jit
def litz_quotient(a, divisor, reciprocal):
    wide = a.to(tl.float64)
    quotient = (wide * reciprocal).to(tl.float32)
    rest = (wide - quotient.to(tl.float64) * divisor).to(tl.float32)
    corrected = (quotient.to(tl.float64) + rest.to(tl.float64) * reciprocal).to(tl.float32)
    return tl.where(tl.abs(rest) > 0, corrected, quotient)


@triton.jit
def litz_int_pow(base, exponent):
    base, exponent = tl.broadcast(base, exponent)  # what a loop carries keeps its shape
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
    base, rest = tl.broadcast(base, exponent)
    square = base
    result = rest * 0 + 1
    for _ in range(base.dtype.primitive_bitwidth):
        result = tl.where((rest & 1) != 0, result * square, result)
        square = square * square
        rest = rest >> 1
    return result


@triton.jit
def litz_gcd(a, b):
    a, b = tl.broadcast(a, b)  # what a loop carries keeps its shape
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
"""

COMPILED = {
    "litz_quotient": """
@triton.jit
def litz_quotient(a, divisor, reciprocal):
    quotient = a * reciprocal
    rest = tl.fma(quotient, divisor * -1.0, a)
    # zeros keep their sign, and infinities have no rest
    return tl.where(tl.abs(rest) > 0, tl.fma(rest, reciprocal, quotient), quotient)
""".strip(),
}
"""Functions with fused multiplications and additions, which the interpreter rounds twice."""
