"""Functions of f32 without branches: as exact as libdevice's, or approximate, for uses that round the error away."""

SOURCE = """
@triton.jit
def litz_exp2_flushed(x):
    return tl.exp2(x)


@triton.jit
def litz_exp_flushed(x):
    return tl.exp(x)


@triton.jit
def litz_reciprocal_of_normal(x):
    return 1.0 / x


@triton.jit
def litz_sigmoid(x):
    # an exponential that is flushed to zero would vanish when added to 1
    return 1.0 / (1.0 + litz_exp_flushed(x * -1.0))


@triton.jit
def litz_tanh_of_f32(x):
    # both ranges are computed, so that no thread waits for others' branches
    size = tl.abs(x)
    square = x * x
    series = tl.fma(square, tl.fma(square, 0.016458770260214806, -0.052684150636196136), 0.13320942223072052)
    near = x * tl.fma(square, tl.fma(square, series, -0.33332958817481995), 1.0)
    far = tl.fma(litz_reciprocal_of_normal(1.0 + litz_exp2_flushed(size * 2.8853900817779268)), -2.0, 1.0)
    return tl.where(size < 0.55, near, tl.where(x < 0, far * -1.0, far))


@triton.jit
def litz_one_plus_erf(x):
    # 2 - erfc(x), or erfc(-x): 2 to the power of a polynomial in |x| less x * x * log2(e)
    size = tl.abs(x)
    near = tl.minimum(size, 3.75)
    power = tl.fma(near, 4.7087946768442634e-06, -7.816387369530275e-05)
    power = tl.fma(near, power, 0.0005198271828703582)
    power = tl.fma(near, power, -0.0015240582870319486)
    power = tl.fma(near, power, -0.0008741458877921104)
    power = tl.fma(near, power, 0.028409013524651527)
    power = tl.fma(near, power, -0.14856624603271484)
    power = tl.fma(near, power, 0.5242970585823059)
    power = tl.fma(near, power, -1.627909779548645) * near
    tail = litz_exp2_flushed(tl.fma(size * -1.4426950408889634, size, power))
    return tl.where(x < 0, tail, 2.0 - tail)
"""

COMPILED = {
    "litz_exp2_flushed": """
@triton.jit
def litz_exp2_flushed(x):
    return tl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
    )
""".strip(),
    "litz_exp_flushed": """
@triton.jit
def litz_exp_flushed(x):
    return litz_exp2_flushed(x * 1.4426950408889634)
""".strip(),
    "litz_reciprocal_of_normal": """
@triton.jit
def litz_reciprocal_of_normal(x):
    return tl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
    )
""".strip(),
}
"""Functions that are one NVIDIA instruction in the compiled form: error at most 2 ulp where the result is normal."""
