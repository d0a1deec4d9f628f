"""Rows in order. Triton's own network stands in the compiled form; its interpreter takes minutes for that."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

SOURCE = """
@triton.jit
def litz_sort(x, axis: tl.constexpr):
    # each element goes to the place that its rank says: how many are above it, or equal and before it
    places = tl.arange(0, x.shape[axis])
    other = tl.expand_dims(x, axis)
    own = tl.expand_dims(x, axis + 1)
    earlier = places[None, :] < places[:, None]
    above = (other > own) | ((other == own) & earlier)
    rank = tl.sum(above.to(tl.int32), axis + 1)
    held = tl.expand_dims(rank, axis) == places[:, None]
    return tl.sum(tl.where(held, other, 0), axis + 1)
"""

COMPILED: Mapping[str, str] = MappingProxyType(
    {"litz_sort": "@triton.jit\ndef litz_sort(x, axis: tl.constexpr):\n    return tl.sort(x, axis, True)"}
)
"""The compiled form: a network in which neighbours at distances of powers of two are compared, the largest first."""
