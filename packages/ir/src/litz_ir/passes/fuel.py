"""Fuel: limits on how many transformations a compilation makes, which find a wrong one by bisection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

FuelKind = Literal["fx-pass", "graph-pass", "fusion", "plan-pass", "memory"]
"""Kind of a transformation: a pass over the FX graph, a pass over the loop graph, the fusion of an operation or a group
with another, a pass over the plan, or a value that shares memory with others."""

FUEL_KINDS: tuple[FuelKind, ...] = get_args(FuelKind)
"""The kinds, in the order in which a compilation makes them."""


@dataclass(slots=True)
class Fuel:
    """Limits on the transformations of one compilation, and those that it has made.

    Transformations are counted in the order in which they are made, those of subgraphs included. A compilation without
    some of them gives the same results, unless one of them is wrong. Transformations without which there is no plan
    are not counted. Fuel belongs to one compilation; it is not shared between threads.
    """

    limits: Mapping[FuelKind, int] = field(default_factory=dict)
    """Most transformations by their kind, one of :data:`FUEL_KINDS`; a kind that is missing has no limit."""
    spent: dict[FuelKind, list[str]] = field(default_factory=dict)
    """The transformations made so far by their kind, in order: the name of the pass, operation or value."""

    def spend(self, kind: FuelKind, subject: str) -> bool:
        """Count a transformation and return True; False where the limit of its kind is reached, so that it is not
        made."""
        made = self.spent.setdefault(kind, [])
        if len(made) >= self.limits.get(kind, len(made) + 1):
            return False
        made.append(subject)
        return True
