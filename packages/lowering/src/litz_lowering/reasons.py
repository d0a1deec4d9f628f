"""Reasons for lowering's decisions, a row each."""

from __future__ import annotations

from litz_ir.fused import Reason

ATTENTION_KERNEL = Reason(
    "attention.kernel",
    "it is attention of matmuls and a softmax, which a library kernel runs where masks allow",
)
ATTENTION_READ = Reason(
    "attention.read",
    "another operation reads a value between the matmuls, which the fused kernel does not return",
)
ATTENTION_STEP = Reason(
    "attention.step", "the fused kernel does not support an operation between the matmuls"
)
ATTENTION_SCALE = Reason("attention.scale", "the scale of its scores is not known before the graph runs")
ATTENTION_MASK = Reason("attention.mask", "the fused kernel does not support its mask")
ATTENTION_ORDER = Reason(
    "attention.order", "an operation between the matmuls has its dimensions in another order"
)
ATTENTION_DIMENSION = Reason("attention.dimension", "its softmax is not over the keys")
ATTENTION_DTYPE = Reason(
    "attention.dtype",
    "eager rounds scores and weights to a low-precision float, which the fused kernel does not",
)
ATTENTION_HEADS = Reason("attention.heads", "its queries and values have different head dimensions")
ATTENTION_SYMBOLS = Reason("attention.symbols", "its sizes are not known before the graph runs")
ATTENTION_DEVICE = Reason("attention.device", "the fused kernel runs on the CPU only")
ATTENTION_SMALL = Reason("attention.small", "it has too few operations for the fused kernel to pay off")

FLEX_ATTENTION_FUSED = Reason(
    "flex_attention.fused", "the loop that uses its scores computes them, so they are never in memory"
)
FLEX_ATTENTION_FUNCTION = Reason(
    "flex_attention.function", "its score_mod or mask_mod is not an expression of one query and one key"
)
FLEX_ATTENTION_DTYPE = Reason(
    "flex_attention.dtype", "its operands are not all 16-bit or 32-bit floats of one dtype"
)
FLEX_ATTENTION_EMPTY = Reason("flex_attention.empty", "one of its operands has no elements")
FLEX_ATTENTION_BLOCKS = Reason(
    "flex_attention.blocks",
    "a CPU cannot compute its scores in blocks, and would compute each once for every element of a value",
)
FLEX_ATTENTION_GRADIENT = Reason(
    "flex_attention.gradient",
    "its gradient is unused, must be deterministic, or reads a whole captured tensor",
)
