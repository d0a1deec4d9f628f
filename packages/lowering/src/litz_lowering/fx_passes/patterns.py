"""Patterns over ATen graphs as data, and their matcher.

A pattern describes a node and, through its arguments, the nodes that it is computed from. The matcher starts at
one result node and tries alternatives in the order in which they are written.
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
    """Accept every node."""
    return True


@dataclass(frozen=True, slots=True)
class AnyNode:
    """Any node for which ``where`` holds, bound to ``name``."""

    name: str
    where: Predicate = always


@dataclass(frozen=True, slots=True)
class NumberPattern:
    """A Python number, bound to ``name``."""

    name: str


@dataclass(frozen=True, slots=True)
class CallPattern:
    """A call of one of ``targets`` (overload names) whose first arguments match ``arguments``."""

    targets: tuple[str, ...]
    arguments: tuple[Pattern, ...]
    where: Predicate = always
    """Predicate on the node itself, for other arguments and metadata."""
    once: bool = True
    """Require that the node has a single user."""
    commutes: bool = False
    """Allow the first two arguments to be swapped."""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of optional step: a call with :data:`HERE` as the argument that continues the steps."""

    name: str
    call: CallPattern


@dataclass(frozen=True, slots=True)
class OptionalSteps:
    """A maximal sequence of steps, each one of ``rows``, down to ``inner``. A match stores them under ``name``."""

    name: str
    rows: tuple[Row, ...]
    inner: Pattern


@dataclass(frozen=True, slots=True)
class Either:
    """The first of several patterns that matches."""

    of: tuple[Pattern, ...]


Pattern = AnyNode | NumberPattern | CallPattern | OptionalSteps | Either

HERE = AnyNode("")
"""Marker of the argument of a step that is the next step, or the inner pattern."""


@dataclass(frozen=True, slots=True)
class MatchedStep:
    """An optional step: name of its row, its node, the node that it continues to, and the nodes under the row's
    names."""

    row: str
    node: Node
    inner: Node
    bound: NamedNodes


@dataclass(frozen=True, slots=True)
class Match:
    """A match: calls from the result upwards, nodes by name, and optional steps from the result upwards."""

    calls: tuple[Node, ...] = ()
    bound: NamedNodes = field(default_factory=lambda: MappingProxyType({}))
    steps: Mapping[str, tuple[MatchedStep, ...]] = field(default_factory=lambda: MappingProxyType({}))

    def node(self, name: str) -> Node:
        """Node that is bound to ``name``."""
        found = self.bound[name]
        assert isinstance(found, Node), f"{name} is bound to a number"
        return found

    def steps_of(self, name: str) -> tuple[MatchedStep, ...]:
        """Optional steps that matched under ``name``; empty also on an alternative that did not match."""
        return self.steps.get(name, ())


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The deepest failure of a match: the node that did not match, and True for ``readers`` if only its number of
    users was wrong."""

    node: Node
    readers: bool = False


def find(pattern: Pattern, node: Node) -> Match | Mismatch:
    """Match ``pattern`` with result ``node``; on failure, return the deepest mismatch."""
    attempt = _Attempt(Mismatch(node))
    match = next(attempt.match(pattern, node, Match()), None)
    return attempt.furthest if match is None else match


class _Attempt:
    """Matcher of one pattern at one node, which records the deepest mismatch."""

    def __init__(self, furthest: Mismatch) -> None:
        self.furthest = furthest
        self._reached = -1

    def match(self, pattern: Pattern, value: object, found: Match) -> Iterator[Match]:
        """Yield ``found`` extended by each match of the pattern with ``value``."""
        match pattern:
            case AnyNode(name, where):
                if isinstance(value, Node) and where(value):
                    yield _with(found, name, value)
            case NumberPattern(name):
                if isinstance(value, int | float) and not isinstance(value, bool):
                    yield _with(found, name, value)
            case CallPattern():
                yield from self._call(pattern, value, found)
            case OptionalSteps():
                yield from self._optional_steps(pattern, value, found)
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

    def _optional_steps(self, repeated: OptionalSteps, value: object, found: Match) -> Iterator[Match]:
        for row in repeated.rows:
            for own in self._call(row.call, value, Match(calls=found.calls)):
                inner = own.node(HERE.name)
                bound = {name: each for name, each in own.bound.items() if name != HERE.name}
                steps = (*found.steps_of(repeated.name), MatchedStep(row.name, own.calls[-1], inner, bound))
                further = replace(found, calls=own.calls, steps={**found.steps, repeated.name: steps})
                yield from self._optional_steps(repeated, inner, further)
        yield from self.match(repeated.inner, value, found)

    def _is_called(self, pattern: CallPattern, node: Node, depth: int) -> bool:
        fits = (
            isinstance(node.target, torch._ops.OpOverload)
            and str(node.target) in pattern.targets
            and len(node.args) >= len(pattern.arguments)
            and pattern.where(node)
        )
        has_allowed_users = not pattern.once or len(node.users) == 1 or depth == 0
        if fits and has_allowed_users:
            return True
        if depth > self._reached or (fits and depth == self._reached):
            self._reached, self.furthest = depth, Mismatch(node, readers=fits)
        return False


def _with(found: Match, name: str, value: object) -> Match:
    return replace(found, bound={**found.bound, name: value})
