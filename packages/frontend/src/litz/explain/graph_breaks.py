"""Graph breaks: positions at which Dynamo stops capturing, so that part of a function runs uncompiled."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import reduce
from operator import or_

from torch._dynamo.utils import counters

_BREAKS = ("graph_break", "unimplemented")
"""Names of Dynamo's counters of reasons: for graph breaks, and for everything that it does not trace, which alone
counts a frame that is skipped as a whole. A reason may be in both."""

_ADDRESS = "For more details"
"""Start of the web address in Dynamo's messages."""


@dataclass(frozen=True, slots=True)
class GraphBreak:
    """A reason for which Dynamo ended a graph."""

    reason: str
    """Dynamo's message."""

    count: int
    """Number of graph breaks for this reason."""

    @property
    def lines(self) -> tuple[str, ...]:
        """The message line by line, without its web address: title, explanation, hints and context."""
        lines = self.reason.partition(_ADDRESS)[0].splitlines()
        return tuple(line.strip() for line in lines if line.strip())


class GraphBreaks:
    """The graph breaks since this object was created, by Dynamo's own counters."""

    def __init__(self) -> None:
        self._before = _counted()

    def found(self) -> tuple[GraphBreak, ...]:
        """Return each reason since then, the most frequent first."""
        new = _counted() - self._before
        return tuple(GraphBreak(reason, count) for reason, count in new.most_common())


def _counted() -> Counter[str]:
    """Return Dynamo's present count of each reason."""
    first, *others = (Counter(counters[name]) for name in _BREAKS)
    return reduce(or_, others, first)
