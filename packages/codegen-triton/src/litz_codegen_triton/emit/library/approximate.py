"""Approximate functions, for uses in which the error does not reach the rounded result."""

SOURCE = """
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
def litz_brief_tanh(x):
    # relative error 2^-21; both ranges are computed, so that no branch is needed
    size = tl.abs(x)
    square = x * x
    series = tl.fma(square, tl.fma(square, 0.021869488, -0.053968254), 0.13333333)
    series = tl.fma(square, tl.fma(square, series, -0.33333333), 1.0)
    power = litz_exp_flushed(size * -2.0)
    ratio = (1.0 - power) * litz_reciprocal_of_normal(1.0 + power)
    return tl.where(size < 0.25, x * series, tl.where(x < 0, ratio * -1.0, ratio))
"""

COMPILED = {
    "litz_exp_flushed": """
@triton.jit
def litz_exp_flushed(x):
    scaled = x * 1.4426950408889634
    return tl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=f,f", [scaled], dtype=tl.float32, is_pure=True, pack=1
    )
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
