"""Conversions of low-precision floats by their bits: fp8 in both forms of a kernel, ``bfloat16`` when interpreted."""

SOURCE = """
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
