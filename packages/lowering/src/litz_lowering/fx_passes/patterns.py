"""Patterns over ATen graphs, as data, and the matcher that finds them.

A pattern describes a node and, through its arguments, what the node is computed from. It is matched from the result
upwards: against one node at a time, trying alternatives in the order in which they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import torch
from torch.fx import Node

Predicate = Callable[[Node], bool]
NamedNodes = Mapping[str, object]


def always(node: Node) -> bool:
    """The predicate that holds for every node."""
    return True


@dataclass(frozen=True, slots=True)
class AnyNode:
    """Any node for which ``where`` holds; it is bound to ``name``."""

    name: str
    where: Predicate = always


@dataclass(frozen=True, slots=True)
class NumberPattern:
    """A Python number, bound to ``name``."""

    name: str


@dataclass(frozen=True, slots=True)
class CallPattern:
    """A call of one of ``targets`` (overload names) whose first arguments match ``arguments``.

    ``where`` looks at the node itself: at its other arguments and its metadata. ``once`` asks that one node alone reads
    it. Where the operator ``commutes``, its first two arguments may be the other way round.
    """

    targets: tuple[str, ...]
    arguments: tuple[Pattern, ...]
    where: Predicate = always
    once: bool = True
    commutes: bool = False
    name: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of optional step: a call, one of whose arguments is :data:`HERE`, the value that the step changes."""

    name: str
    call: CallPattern


@dataclass(frozen=True, slots=True)
class StepChain:
    """Any number of steps, each one of ``rows``, down to ``inner``; as many as there are. They are kept by ``name``."""

    name: str
    rows: tuple[Row, ...]
    inner: Pattern


@dataclass(frozen=True, slots=True)
class Either:
    """The first of several patterns that matches."""

    of: tuple[Pattern, ...]


Pattern = AnyNode | NumberPattern | CallPattern | StepChain | Either

HERE = AnyNode("")
"""Where a step's row goes on: what stands here is the next step, or what is inside all of them."""


@dataclass(frozen=True, slots=True)
class MatchedStep:
    """A step of a chain: the row that it matched, its node, the node that it changes, and what the row's names are
    bound to."""

    row: str
    node: Node
    inner: Node
    bound: NamedNodes


@dataclass(frozen=True, slots=True)
class Match:
    """What a pattern found: the calls from the result upwards, what its names are bound to, and the steps of its
    chains, from the result upwards too."""

    calls: tuple[Node, ...] = ()
    bound: NamedNodes = field(default_factory=lambda: MappingProxyType({}))
    steps: Mapping[str, tuple[MatchedStep, ...]] = field(default_factory=lambda: MappingProxyType({}))

    def node(self, name: str) -> Node:
        """The node that is bound to ``name``."""
        found = self.bound[name]
        assert isinstance(found, Node), f"{name} is bound to a number"
        return found

    def chain(self, name: str) -> tuple[MatchedStep, ...]:
        """The steps of a chain; none where it is empty, or on an alternative that was not taken."""
        return self.steps.get(name, ())


@dataclass(frozen=True, slots=True)
class Mismatch:
    """How far a pattern went: the node that stopped it, and whether only its ``readers`` were at fault."""

    node: Node
    readers: bool = False


def find(pattern: Pattern, node: Node) -> Match | Mismatch:
    """The first match of ``pattern`` whose result is ``node``, or what stopped the attempt that came furthest."""
    attempt = _Attempt(Mismatch(node))
    match = next(attempt.match(pattern, node, Match()), None)
    return attempt.furthest if match is None else match


class _Attempt:
    """Matches one pattern against one node; remembers how far it came."""

    def __init__(self, furthest: Mismatch) -> None:
        self.furthest = furthest
        self._reached = -1

    def match(self, pattern: Pattern, value: object, found: Match) -> Iterator[Match]:
        """``found`` and what the pattern adds to it, in every way in which ``value`` matches."""
        match pattern:
            case AnyNode(name, where):
                if isinstance(value, Node) and where(value):
                    yield _with(found, name, value)
            case NumberPattern(name):
                if isinstance(value, int | float) and not isinstance(value, bool):
                    yield _with(found, name, value)
            case CallPattern():
                yield from self._call(pattern, value, found)
            case StepChain():
                yield from self._chain(pattern, value, found)
            case Either(of):
                for each in of:
                    yield from self.match(each, value, found)

    def _call(self, pattern: CallPattern, value: object, found: Match) -> Iterator[Match]:
        if not isinstance(value, Node):
            return
        if not self._is_called(pattern, value, len(found.calls)):
            return
        found = replace(found, calls=(*found.calls, value))
        if pattern.name:
            found = _with(found, pattern.name, value)
        arguments = tuple(value.args[: len(pattern.arguments)])
        yield from self._arguments(pattern.arguments, arguments, found)
        if pattern.commutes:
            swapped = (arguments[1], arguments[0], *arguments[2:])
            yield from self._arguments(pattern.arguments, swapped, found)

    def _arguments(
        self, patterns: Sequence[Pattern], values: Sequence[object], found: Match
    ) -> Iterator[Match]:
        if not patterns:
            yield found
            return
        for first in self.match(patterns[0], values[0], found):
            yield from self._arguments(patterns[1:], values[1:], first)

    def _chain(self, chain: StepChain, value: object, found: Match) -> Iterator[Match]:
        for row in chain.rows:
            for own in self._call(row.call, value, Match(calls=found.calls)):
                inner = own.node(HERE.name)
                bound = {name: each for name, each in own.bound.items() if name != HERE.name}
                steps = (*found.chain(chain.name), MatchedStep(row.name, own.calls[-1], inner, bound))
                further = replace(found, calls=own.calls, steps={**found.steps, chain.name: steps})
                yield from self._chain(chain, inner, further)
        yield from self.match(chain.inner, value, found)

    def _is_called(self, pattern: CallPattern, node: Node, depth: int) -> bool:
        fits = (
            isinstance(node.target, torch._ops.OpOverload)
            and str(node.target) in pattern.targets
            and len(node.args) >= len(pattern.arguments)
            and pattern.where(node)
        )
        lonely = not pattern.once or len(node.users) == 1 or depth == 0
        if fits and lonely:
            return True
        if depth > self._reached or (fits and depth == self._reached):
            self._reached, self.furthest = depth, Mismatch(node, readers=fits)
        return False


def _with(found: Match, name: str, value: object) -> Match:
    return replace(found, bound={**found.bound, name: value})
