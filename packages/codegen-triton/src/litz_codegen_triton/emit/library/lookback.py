"""Words that programs leave for those after them."""

SOURCE = """
@triton.jit
def litz_word(bits):
    # 32 bits, and above them that they are there
    return (bits.to(tl.int64) & 4294967295) | 4294967296
"""
