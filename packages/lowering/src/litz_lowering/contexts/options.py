"""Options of lowering."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class LoweringOptions:
    """Options of lowering, as the frontend sets them."""

    rng: Literal["eager", "fast"] = "eager"
    """Source of random numbers: ``eager`` calls ATen's generator in program order, ``fast`` runs Philox in
    kernels."""
    force_extern: frozenset[str] = frozenset()
    """Names of FX nodes that run as their ATen operation, even where a rule exists."""
    numerics: Literal["strict", "eager", "fast"] = "eager"
    """Arithmetic: ``strict`` gives eager's bits, by loops for operators in :mod:`litz_lowering.aten.bit_equal` and by
    eager's kernels for all others; ``eager`` rounds as eager does; ``fast`` may differ in the last bit where that is
    quicker, for example by multiplying with a reciprocal instead of dividing by a number."""
    deterministic: bool = False
    """Require bitwise repeatable results. On GPUs, float sums by atomics then run in ATen, which sorts them or
    raises."""
    fallback: Literal["warn", "silent", "error"] = "warn"
    """Treatment of operators without a usable rule: ``error`` raises, except for operators in
    :mod:`litz_lowering.aten.fallback_families`; ``warn`` and ``silent`` record them, and the caller reports."""
    attention: bool = True
    """Run matmul-softmax-matmul patterns by ATen's fused kernel, where results are provably the same."""
    nested_reductions: frozenset[str] = frozenset()
    """Kinds of devices whose loop bodies may hold sums; ``flex_attention`` becomes loops there."""
    blocked_attention: frozenset[str] = frozenset()
    """Kinds of these that compute attention in blocks of queries: forward, for heads of at most 256 elements."""
    wide_matmuls: frozenset[str] = frozenset()
    """Kinds of devices whose library writes a matmul of bf16 or f16 that is cast to f32 at once in f32, which leaves
    out the rounding between them."""
    max_sorted_row: int = 0
    """Longest row that a sort loop handles on a GPU, in elements. With 0, only short rows are sorted in loops, by
    comparing all pairs; a library sorts the rest."""
