"""Power series, continued fractions and recurrences, iterated until every lane has converged."""

SOURCE = """
@triton.jit
def litz_anywhere(condition):
    # a condition on values that are the same for the whole kernel is a scalar, not a block
    if condition.type.is_block():
        return tl.max(condition.to(tl.int32), axis=None) > 0
    else:
        return condition


@triton.jit
def litz_gamma_series(a, x):
    start = a.to(tl.float64)
    value = x.to(tl.float64)
    term = tl.where(start == start, tl.where(value == value, 1.0, value), start)
    total = term
    k = 1.0
    counts = term > 0.0
    while litz_anywhere(counts) & (k <= 2000.0):
        term = tl.where(counts, term * (value / (start + k)), 0.0)
        total = total + term
        counts = tl.abs(term) > tl.abs(total) * 1.1102230246251565e-16
        k += 1.0
    return total.to(x.dtype)


@triton.jit
def litz_gamma_fraction(a, x):
    # Lentz's method: d and c are the ratios of neighbouring denominators and numerators
    start = a.to(tl.float64)
    b = x.to(tl.float64) + 1.0 - start
    d = 1.0 / b
    c = tl.where(b == b, float("inf"), b)
    value = d
    k = 1.0
    going = value == value
    while litz_anywhere(going) & (k <= 2000.0):
        step = k * (start - k)
        b = b + 2.0
        d = 1.0 / (b + step * d)
        c = b + step / c
        value = tl.where(going, value * (c * d), value)
        going = going & (tl.abs(c * d - 1.0) > 2.220446049250313e-16)
        k += 1.0
    return value.to(x.dtype)


@triton.jit
def litz_three_term(n, first, a, b, c, d, e):
    held = (n > -1.0) & (n < 9223372036854775808.0)
    last = tl.where(held, n, -1.0)
    last = tl.where(held, last.to(tl.int64), -1)
    # each value that the loop carries has the shape of all arguments together
    shape = (n == n) | (first == first) | (a == a) | (b == b) | (c == c) | (d == d) | (e == e)
    before = tl.where(shape, 1.0, first)
    value = tl.where(shape, first, first)
    k = shape.to(tl.int64)
    going = (last > k) & (value == value)
    while litz_anywhere(going):
        place = k.to(first.dtype)
        following = tl.fma(tl.fma(a, place, b), value, (c + d * place) * before * -1.0) / (e * place + 1.0)
        before = tl.where(going, value, before)
        value = tl.where(going, following, value)
        k = k + 1
        going = (last > k) & (value == value)
    return tl.where(last < 0, 0.0, tl.where(last == 0, 1.0, value))
"""
