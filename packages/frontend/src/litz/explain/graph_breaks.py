"""Graph breaks: where Dynamo stopped capturing, so that a part of a function runs without any compiler."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import reduce
from operator import or_

from torch._dynamo.utils import counters

_BREAKS = ("graph_break", "unimplemented")
"""Dynamo's counters of reasons: of breaks, and of all that it does not trace, which is all that it tells of where it
gives a whole frame up instead of breaking it. A reason may be in both."""

_ADDRESS = "For more details"


@dataclass(frozen=True, slots=True)
class GraphBreak:
    """A reason for which Dynamo ended a graph, in its own words, and how often it did."""

    reason: str
    count: int

    @property
    def lines(self) -> tuple[str, ...]:
        """The reason line by line: its title, then the explanation, hints and context; no web address."""
        told = self.reason.partition(_ADDRESS)[0].splitlines()
        return tuple(line.strip() for line in told if line.strip())


class GraphBreaks:
    """The graph breaks from when this was made on, by Dynamo's own count."""

    def __init__(self) -> None:
        self._before = _counted()

    def found(self) -> tuple[GraphBreak, ...]:
        """Each reason since then, the most frequent first."""
        new = _counted() - self._before
        return tuple(GraphBreak(reason, count) for reason, count in new.most_common())


def _counted() -> Counter[str]:
    """How often Dynamo has given each reason by now."""
    first, *others = (Counter(counters[name]) for name in _BREAKS)
    return reduce(or_, others, first)
