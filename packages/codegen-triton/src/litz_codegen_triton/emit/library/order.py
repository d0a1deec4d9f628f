"""Sorting along an axis: ``tl.sort`` when compiled; by ranks when interpreted, where ``tl.sort`` takes minutes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

SOURCE = """
@triton.jit
def litz_sort(x, axis: tl.constexpr):
    # the rank of an element, its position in the result, counts those above it, or equal and before it
    positions = tl.arange(0, x.shape[axis])
    other = tl.expand_dims(x, axis)
    own = tl.expand_dims(x, axis + 1)
    earlier = positions[None, :] < positions[:, None]
    above = (other > own) | ((other == own) & earlier)
    rank = tl.sum(above.to(tl.int32), axis + 1)
    chosen = tl.expand_dims(rank, axis) == positions[:, None]
    return tl.sum(tl.where(chosen, other, 0), axis + 1)
"""

COMPILED: Mapping[str, str] = MappingProxyType(
    {"litz_sort": "@triton.jit\ndef litz_sort(x, axis: tl.constexpr):\n    return tl.sort(x, axis, True)"}
)
"""Source of the compiled form, which calls Triton's bitonic sort in descending order."""
