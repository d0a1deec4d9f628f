"""What a caller may choose about lowering."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class LoweringOptions:
    """``rng``: ``eager`` draws from ATen's own stream in program order, ``fast`` generates Philox numbers in kernels.

    ``numerics``: ``eager`` computes as eager does; ``fast`` may differ in the last place where that is quicker (a
    product with the reciprocal for a division by a number). ``deterministic``: results repeat bit by bit. Sums of
    floats in no order, on GPUs, are left to ATen, which sorts what it sums, or refuses. ``force_extern`` names FX
    nodes that are to run as their ATen operation, whatever rules exist. ``fallback``: ``error`` refuses what has no
    rule, or whose rule declines, unless it is meant for ATen (:mod:`litz_lowering.fallback_families`); ``warn`` and
    ``silent`` record it (telling is the caller's part). ``attention``: products around a softmax may run as the
    library's attention, where that provably gives the same. ``max_sorted_row`` is the longest row that a loop has in
    order on a GPU; 0 leaves all to a library but short rows, whose elements are compared with one another.
    ``nested_reductions`` are the kinds of devices on which bodies of loops may hold sums: flexible attention becomes
    loops there.
    """

    rng: Literal["eager", "fast"] = "eager"
    force_extern: frozenset[str] = frozenset()
    numerics: Literal["eager", "fast"] = "eager"
    deterministic: bool = False
    fallback: Literal["warn", "silent", "error"] = "warn"
    attention: bool = True
    nested_reductions: frozenset[str] = frozenset()
    max_sorted_row: int = 0
