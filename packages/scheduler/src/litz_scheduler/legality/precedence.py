"""Precedence: the order that dependencies impose on groups.

The ancestors of a group are a bit mask, so that a test costs one machine operation per 64 groups. A group has the
bits of all groups merged into it, so that masks need no rewriting; an edge added late is propagated to all
descendants.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable


class Precedence:
    """A directed acyclic graph over groups, which are numbered in the order of their creation."""

    def __init__(self) -> None:
        self._into: list[int] = []
        self._bits: list[int] = []
        self._ancestors: list[int] = []
        self._parents: list[set[int]] = []
        self._children: list[set[int]] = []

    def add(self) -> int:
        """Add a group without dependencies, and return its number."""
        number = len(self._into)
        self._into.append(number)
        self._bits.append(1 << number)
        self._ancestors.append(0)
        self._parents.append(set())
        self._children.append(set())
        return number

    def copy(self) -> Precedence:
        """Return a copy that can be changed independently."""
        copied = Precedence()
        copied._into, copied._bits = self._into.copy(), self._bits.copy()
        copied._ancestors = self._ancestors.copy()
        copied._parents = [set(each) for each in self._parents]
        copied._children = [set(each) for each in self._children]
        return copied

    def find(self, number: int) -> int:
        """Return the group that a group was finally merged into, or the group itself."""
        root = number
        while self._into[root] != root:
            root = self._into[root]
        while self._into[number] != root:
            self._into[number], number = root, self._into[number]
        return root

    def parents(self, number: int) -> set[int]:
        """Return the groups that it depends on directly."""
        return {self.find(parent) for parent in self._parents[number]} - {number}

    def before(self, first: int, second: int) -> bool:
        """Return True when ``first`` must run before ``second``."""
        return bool(self._ancestors[second] & self._bits[first])

    def between(self, first: int, needed: Iterable[int]) -> bool:
        """Return True when one of ``needed``, other than ``first``, must run after ``first``.

        An operation that depends on all of ``needed`` can then not be fused into ``first``.
        """
        return any(self.before(first, n) for n in needed if n != first)

    def require(self, number: int, needed: Collection[int]) -> None:
        """Add the dependency of ``number`` on each of ``needed``; the caller has excluded cycles."""
        mask = self._ancestors[number]
        for parent in needed:
            mask |= self._ancestors[parent] | self._bits[parent]
            self._children[parent].add(number)
        self._parents[number].update(needed)
        self._raise_ancestors(number, mask)

    def merge(self, target: int, other: int) -> None:
        """Merge ``other`` into ``target``; no third group may have to run between them."""
        self._into[other] = target
        self._bits[target] |= self._bits[other]
        self._parents[target] |= self._parents[other]
        self._children[target] |= self._children[other]
        mask = (self._ancestors[target] | self._ancestors[other]) & ~self._bits[target]
        self._ancestors[target] = mask
        for child in {self.find(c) for c in self._children[target]} - {target}:
            self._raise_ancestors(child, self._ancestors[child] | mask | self._bits[target])

    def _raise_ancestors(self, number: int, mask: int) -> None:
        """Add the ancestors ``mask`` to a group and to all its descendants."""
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
        """Return the groups in topological order; of those that are ready, the one of least position first."""
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
