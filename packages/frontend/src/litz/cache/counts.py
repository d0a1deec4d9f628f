"""Counts of lookups and writes of the cache in this process, kept among Dynamo's counters.

They are ``torch._dynamo.utils.counters["litz"]["cache.KIND.TIER.QUANTITY"]``, with the times in microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch._dynamo.utils import counters

LOCAL, LAYER, REMOTE, NOWHERE = "local", "layer", "remote", "nowhere"
"""Tiers in which an entry may be found: the cache folder, a layer, the remote cache, none of them."""

_PREFIX = "cache."


@dataclass(frozen=True, slots=True)
class CacheUse:
    """Lookups and writes of one kind of entries in one tier of the cache, in this process."""

    kind: str
    """Kind of the entries: ``graphs``, ``binaries`` and others."""

    tier: str
    """Tier: ``local``, ``layer``, ``remote``; ``nowhere`` counts the lookups that found nothing in any of them."""

    hits: int = 0
    """Number of lookups that found an entry in this tier."""

    misses: int = 0
    """Number of lookups that found none in it; further tiers were asked where there are some."""

    writes: int = 0
    """Number of entries written to it."""

    bytes: int = 0
    """Bytes of the entries that were found or written."""

    seconds: float = 0.0
    """Time of the lookups in this tier, in seconds."""


def count(kind: str, tier: str, *, seconds: float = 0.0, **numbers: int) -> None:
    """Add to the counts of a kind of entries in a tier: ``hits``, ``misses``, ``writes`` or ``bytes``."""
    own = counters["litz"]
    for quantity, number in (*numbers.items(), ("microseconds", round(1e6 * seconds))):
        if number:
            own[f"{_PREFIX}{kind}.{tier}.{quantity}"] += number


def stats() -> tuple[CacheUse, ...]:
    """Return the lookups and writes of this process by kind and tier, since Dynamo's counters were cleared.

    Tiers are ``local``, ``layer``, ``remote`` and ``nowhere``; times are in seconds, sizes in bytes.
    """
    found: dict[tuple[str, str], dict[str, int]] = {}
    for name, number in counters["litz"].items():
        if name.startswith(_PREFIX):
            _, kind, tier, quantity = name.split(".")
            found.setdefault((kind, tier), {})[quantity] = number
    return tuple(
        CacheUse(kind, tier, seconds=1e-6 * numbers.pop("microseconds", 0), **numbers)
        for (kind, tier), numbers in sorted(found.items())
    )
