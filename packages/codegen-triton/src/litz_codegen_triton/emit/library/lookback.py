"""The encoding of words that a CTA of a look-back scan publishes for later CTAs."""

SOURCE = """
@triton.jit
def litz_word(bits):
    # the payload in the low 32 bits, and bit 32 as the flag that says it was written
    return (bits.to(tl.int64) & 4294967295) | 4294967296
"""
