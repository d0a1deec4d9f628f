"""Merge functions of reductions and scans: the components of two states in, those of the merged state out."""

SOURCE = """
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
    # the lower index wins a tie, and NaN wins over numbers: a negated comparison with NaN is true
    wins_a = ((value_a >= value_b) == 0) & (value_b == value_b)
    wins_b = ((value_b >= value_a) == 0) & (value_a == value_a)
    first = wins_a | ((wins_b == 0) & (index_a < index_b))
    return tl.where(first, value_a, value_b), tl.where(first, index_a, index_b)


@triton.jit
def litz_argmax(value_a, index_a, value_b, index_b):
    # the lower index wins a tie, and NaN wins over numbers: a negated comparison with NaN is true
    wins_a = ((value_a <= value_b) == 0) & (value_b == value_b)
    wins_b = ((value_b <= value_a) == 0) & (value_a == value_a)
    first = wins_a | ((wins_b == 0) & (index_a < index_b))
    return tl.where(first, value_a, value_b), tl.where(first, index_a, index_b)


@triton.jit
def litz_welford(mean_a, square_a, count_a, mean_b, square_b, count_b):
    count = count_a + count_b
    share = count_b / tl.where(count == 0.0, 1.0, count)
    delta = mean_b - mean_a
    return mean_a + delta * share, square_a + square_b + delta * delta * count_a * share, count


@triton.jit
def litz_welford_step(mean, square, value, share):
    # add one value to every state; all have the same count, so share = 1 / count
    delta = value - mean
    mean = mean + delta * share
    return mean, square + delta * (value - mean)


@triton.jit
def litz_welford_step_inside(mean, square, value, share, inside):
    # the same where some states get no more values; they had as many as the others until then
    delta = tl.where(inside, value - mean, 0.0)
    mean = mean + delta * share
    return mean, square + delta * (value - mean)


@triton.jit
def litz_finite_or_zero(x):
    return tl.where(x == float("-inf"), 0.0, x)


@triton.jit
def litz_online_softmax(max_a, sum_a, max_b, sum_b):
    top = tl.maximum(max_a, max_b, propagate_nan=tl.PropagateNan.ALL)
    # the state with the larger maximum is not rescaled; of equal maxima, infinite ones too, neither is
    scale = tl.exp(tl.where(max_a == max_b, 0.0, tl.abs(max_a - max_b) * -1.0))
    return top, tl.where(max_a >= max_b, sum_a + sum_b * scale, sum_a * scale + sum_b)


@triton.jit
def litz_softmax_sum(max_a, sum_a, weighted_a, max_b, sum_b, weighted_b):
    top = tl.maximum(max_a, max_b, propagate_nan=tl.PropagateNan.ALL)
    base = litz_finite_or_zero(top)
    scale_a = tl.exp(max_a - base)
    scale_b = tl.exp(max_b - base)
    return top, sum_a * scale_a + sum_b * scale_b, weighted_a * scale_a + weighted_b * scale_b
"""
