"""Rounding, powers, exponentials, logarithms and hyperbolic functions, which replace libdevice when interpreted."""

SOURCE = """
@triton.jit
def litz_trunc(x):
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))


@triton.jit
def litz_round(x):
    down = tl.floor(x)
    rest = x - down
    odd = tl.floor(down * 0.5) * 2.0 != down
    rounded = tl.where((rest > 0.5) | ((rest == 0.5) & odd), down + 1.0, down)
    # keep the sign of what rounds to zero: constants that compare equal to zero are +0.0
    rounded = tl.where((rounded == 0) & (x < 0), x * 0.0, rounded)
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
"""
