"""Minimum cut of a graph whose nodes have costs for either side and whose pairs have costs for being separated."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

INFINITE_COST = 1 << 62
"""A cost that the minimum cut never includes."""


class MinimumCut:
    """The partition of nodes into inside and outside with the least total cost.

    Costs are integers. The partition is found as a maximum flow by Dinic's algorithm (1970).
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._edges: list[list[int]] = [[], []]
        self._targets: list[int] = []
        self._capacities: list[int] = []

    def inside(self, node: Hashable, cost: int) -> None:
        """Charge ``cost`` if ``node`` is outside."""
        self._edge(_SOURCE, self._number(node), cost, 0)

    def outside(self, node: Hashable, cost: int) -> None:
        """Charge ``cost`` if ``node`` is inside."""
        self._edge(self._number(node), _SINK, cost, 0)

    def same_partition(self, one: Hashable, other: Hashable, cost: int) -> None:
        """Charge ``cost`` if two nodes are on different sides."""
        if one != other:
            self._edge(self._number(one), self._number(other), cost, cost)

    def found(self) -> frozenset[Hashable]:
        """Return the nodes inside: the smallest such set of least cost."""
        while (levels := self._levels())[_SINK] >= 0:
            next_edges = [0] * len(self._edges)
            while self._augment(levels, next_edges):
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
        for start_node, end_node, capacity in ((start, end, forth), (end, start, back)):
            self._edges[start_node].append(len(self._targets))
            self._targets.append(end_node)
            self._capacities.append(capacity)

    def _levels(self) -> list[int]:
        """Return the distance of each node from the source over edges with capacity left; -1 where unreachable."""
        levels = [-1] * len(self._edges)
        levels[_SOURCE] = 0
        waiting = deque([_SOURCE])
        while waiting:
            node = waiting.popleft()
            for edge in self._edges[node]:
                end = self._targets[edge]
                if self._capacities[edge] and levels[end] < 0:
                    levels[end] = levels[node] + 1
                    waiting.append(end)
        return levels

    def _augment(self, levels: list[int], next_edges: list[int]) -> bool:
        """Saturate one path from the source to the sink; false where none is left along ``levels``.

        ``next_edges`` counts the edges of each node that are exhausted in this phase.
        """
        path: list[int] = []
        node = _SOURCE
        while node != _SINK:
            edges = self._edges[node]
            while next_edges[node] < len(edges):
                edge = edges[next_edges[node]]
                if self._capacities[edge] and levels[self._targets[edge]] == levels[node] + 1:
                    path.append(edge)
                    node = self._targets[edge]
                    break
                next_edges[node] += 1
            else:
                if not path:
                    return False
                node = self._targets[path.pop() ^ 1]
                next_edges[node] += 1
        flow = min(self._capacities[edge] for edge in path)
        for edge in path:
            self._capacities[edge] -= flow
            self._capacities[edge ^ 1] += flow
        return True


_SOURCE, _SINK = 0, 1
