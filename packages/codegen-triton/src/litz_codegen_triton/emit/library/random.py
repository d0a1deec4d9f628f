"""Random numbers from a seed and a counter: four 32-bit Philox words for each counter."""

SOURCE = """
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
