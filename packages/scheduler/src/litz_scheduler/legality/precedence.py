"""Which group must run before which.

Ancestors are kept as bit masks, so asking whether one group must run before another costs one machine operation per 64
groups. A group keeps the bits of those merged into it, so that masks need no rewriting; edges that come late are
carried on to what follows them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable


class Precedence:
    """A graph without cycles over groups, which are numbered in the order that they were made."""

    def __init__(self) -> None:
        self._into: list[int] = []
        self._bits: list[int] = []
        self._ancestors: list[int] = []
        self._parents: list[set[int]] = []
        self._children: list[set[int]] = []

    def add(self) -> int:
        """A new group that depends on nothing."""
        number = len(self._into)
        self._into.append(number)
        self._bits.append(1 << number)
        self._ancestors.append(0)
        self._parents.append(set())
        self._children.append(set())
        return number

    def copy(self) -> Precedence:
        """The same groups and edges, to be changed."""
        copied = Precedence()
        copied._into, copied._bits = self._into.copy(), self._bits.copy()
        copied._ancestors = self._ancestors.copy()
        copied._parents = [set(each) for each in self._parents]
        copied._children = [set(each) for each in self._children]
        return copied

    def find(self, number: int) -> int:
        """The group that a group was merged into in the end, or itself."""
        root = number
        while self._into[root] != root:
            root = self._into[root]
        while self._into[number] != root:
            self._into[number], number = root, self._into[number]
        return root

    def parents(self, number: int) -> set[int]:
        """The groups that it depends on directly."""
        return {self.find(parent) for parent in self._parents[number]} - {number}

    def before(self, first: int, second: int) -> bool:
        """True when ``first`` must run before ``second``."""
        return bool(self._ancestors[second] & self._bits[first])

    def between(self, first: int, needed: Iterable[int]) -> bool:
        """True when one of ``needed``, other than ``first``, must run after ``first``: what depends on all of them can
        then not run together with ``first``."""
        return any(self.before(first, n) for n in needed if n != first)

    def require(self, number: int, needed: Collection[int]) -> None:
        """Let the groups ``needed`` run before ``number``; the caller has ruled out cycles."""
        mask = self._ancestors[number]
        for parent in needed:
            mask |= self._ancestors[parent] | self._bits[parent]
            self._children[parent].add(number)
        self._parents[number].update(needed)
        self._raise_ancestors(number, mask)

    def merge(self, home: int, other: int) -> None:
        """Make ``other`` a part of ``home``; no third group may run between them."""
        self._into[other] = home
        self._bits[home] |= self._bits[other]
        self._parents[home] |= self._parents[other]
        self._children[home] |= self._children[other]
        mask = (self._ancestors[home] | self._ancestors[other]) & ~self._bits[home]
        self._ancestors[home] = mask
        for child in {self.find(c) for c in self._children[home]} - {home}:
            self._raise_ancestors(child, self._ancestors[child] | mask | self._bits[home])

    def _raise_ancestors(self, number: int, mask: int) -> None:
        stack = [(number, mask)]
        while stack:
            number, mask = stack.pop()
            if mask & ~self._ancestors[number] == 0:
                continue
            mask |= self._ancestors[number]
            self._ancestors[number] = mask
            passed = mask | self._bits[number]
            for child in {self.find(c) for c in self._children[number]} - {number}:
                stack.append((child, self._ancestors[child] | passed))

    def in_order(self, position: Callable[[int], int]) -> list[int]:
        """Every group after those it depends on; among those that are ready, the one of least position first."""
        alive = [n for n in range(len(self._into)) if self._into[n] == n]
        waiting = {n: self.parents(n) for n in alive}
        children: dict[int, list[int]] = {}
        for number, parents in waiting.items():
            for parent in parents:
                children.setdefault(parent, []).append(number)
        left = {number: len(parents) for number, parents in waiting.items()}
        ready = [(position(n), n) for n, count in left.items() if count == 0]
        heapq.heapify(ready)
        order: list[int] = []
        while ready:
            _, number = heapq.heappop(ready)
            order.append(number)
            for child in children.get(number, ()):
                left[child] -= 1
                if left[child] == 0:
                    heapq.heappush(ready, (position(child), child))
        return order
