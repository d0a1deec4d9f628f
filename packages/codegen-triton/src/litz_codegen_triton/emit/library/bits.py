"""Shifts and operations on the bits of floats, for both forms of a kernel."""

SOURCE = """
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
"""
