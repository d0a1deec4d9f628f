"""The cheapest way to divide nodes in two, where nodes want to be on a side and pairs of them on the same one."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

INFINITE_COST = 1 << 62
"""A cost that no division pays."""


class MinimumCut:
    """Wishes with what it costs not to grant them (whole numbers), and the division that costs least in all.

    Found by the greatest flow from one side to the other (Dinic, 1970): what it fills is the cheapest cut.
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._edges: list[list[int]] = [[], []]
        self._ends: list[int] = []
        self._left: list[int] = []

    def inside(self, node: Hashable, cost: int) -> None:
        """``node`` wants to be inside."""
        self._edge(_SOURCE, self._number(node), cost, 0)

    def outside(self, node: Hashable, cost: int) -> None:
        """``node`` wants to be outside."""
        self._edge(self._number(node), _SINK, cost, 0)

    def same_partition(self, one: Hashable, other: Hashable, cost: int) -> None:
        """Two nodes want to be on the same side."""
        if one != other:
            self._edge(self._number(one), self._number(other), cost, cost)

    def found(self) -> frozenset[Hashable]:
        """The nodes inside: as few as the least cost leaves open."""
        while (levels := self._levels())[_SINK] >= 0:
            following = [0] * len(self._edges)
            while self._push(levels, following):
                pass
        return frozenset(node for node, number in self._numbers.items() if levels[number] >= 0)

    def _number(self, node: Hashable) -> int:
        number = self._numbers.get(node)
        if number is None:
            number = self._numbers[node] = len(self._edges)
            self._edges.append([])
        return number

    def _edge(self, start: int, end: int, forth: int, back: int) -> None:
        if forth <= 0 and back <= 0:
            return
        for here, there, room in ((start, end, forth), (end, start, back)):
            self._edges[here].append(len(self._ends))
            self._ends.append(there)
            self._left.append(room)

    def _levels(self) -> list[int]:
        """How many edges with room left lead from the source to each node; -1 where none do."""
        levels = [-1] * len(self._edges)
        levels[_SOURCE] = 0
        waiting = deque([_SOURCE])
        while waiting:
            node = waiting.popleft()
            for edge in self._edges[node]:
                end = self._ends[edge]
                if self._left[edge] and levels[end] < 0:
                    levels[end] = levels[node] + 1
                    waiting.append(end)
        return levels

    def _push(self, levels: list[int], following: list[int]) -> bool:
        """Fill one path from the source to the sink; false where none is left along ``levels``. ``following`` says how
        many edges of each node need not be looked at again."""
        path: list[int] = []
        node = _SOURCE
        while node != _SINK:
            edges = self._edges[node]
            while following[node] < len(edges):
                edge = edges[following[node]]
                if self._left[edge] and levels[self._ends[edge]] == levels[node] + 1:
                    path.append(edge)
                    node = self._ends[edge]
                    break
                following[node] += 1
            else:
                if not path:
                    return False
                node = self._ends[path.pop() ^ 1]
                following[node] += 1
        flow = min(self._left[edge] for edge in path)
        for edge in path:
            self._left[edge] -= flow
            self._left[edge ^ 1] += flow
        return True


_SOURCE, _SINK = 0, 1
