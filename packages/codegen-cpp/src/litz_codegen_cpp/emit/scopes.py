"""Where text goes: nested scopes of one function, and the values that each of them holds.

A value lives in the outermost scope in which all that it is made of is known, so loop-invariant code never enters a
loop, and a scope remembers its values, so nothing is computed twice. A scope's text is appended to its parent's when it
closes: what is hoisted while an inner loop is open therefore stands before that loop.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from litz_ir.dtypes import DType

ScopeKind = Literal["function", "loop", "block", "lanes"]


@dataclass(frozen=True, slots=True)
class CppValue:
    """C++ text of a value. A varying one holds one text per register side by side, or one that serves all of them.

    ``scope_level`` is the position of its scope; ``reads`` names the buffers, among those that the kernel writes, whose
    elements it depends on.
    """

    registers: tuple[str, ...]
    dtype: DType
    scope_level: int
    varying: bool = False
    reads: frozenset[str] = frozenset()

    def register(self, number: int) -> str:
        """The text for one of the registers side by side."""
        return self.registers[number] if len(self.registers) > 1 else self.registers[0]

    def within(self, home: int) -> CppValue:
        """The value after the scopes inside ``scope_level`` that are no C++ blocks have closed."""
        return self if self.scope_level <= home else replace(self, scope_level=home)


@dataclass(frozen=True, slots=True)
class ActiveLanes:
    """Which lanes count: the first ``count`` of one register, or those set in ``masks`` (one text per register)."""

    count: str = ""
    masks: tuple[str, ...] = ()

    def mask(self, part: int) -> str:
        """A mask's text."""
        return self.masks[part] if self.masks else f"first_lanes({self.count})"


@dataclass(slots=True)
class Scope:
    """A stretch of code. ``conditional`` marks one that runs under a condition: nothing is read on its behalf outside
    it.

    A ``lanes`` scope is no C++ block: it writes to its parent's lines, under other active ``lanes``.
    """

    kind: ScopeKind
    lines: list[str] = field(default_factory=list)
    memo: dict[Hashable, CppValue] = field(default_factory=dict)
    axes: dict[str, str] = field(default_factory=dict)
    lanes: ActiveLanes | None = None
    conditional: bool = False


class Scopes:
    """The stack of open scopes, outermost first."""

    def __init__(self) -> None:
        self.stack: list[Scope] = [Scope("function")]

    @property
    def top(self) -> int:
        """The position of the innermost open scope."""
        return len(self.stack) - 1

    def line(self, text: str, home: int | None = None) -> None:
        """Append a line to the scope at ``home``, the innermost one unless told."""
        self.stack[-1 if home is None else home].lines.append(text)

    def find(self, key: Hashable) -> CppValue | None:
        """What is remembered under ``key`` in any open scope."""
        for scope in reversed(self.stack):
            found = scope.memo.get(key)
            if found is not None:
                return found
        return None

    def remember(self, key: Hashable, value: CppValue) -> CppValue:
        """Keep a value in its home scope for as long as that is open."""
        self.stack[value.scope_level].memo[key] = value
        return value

    def forget(self, buffers: frozenset[str]) -> None:
        """Drop all values that depend on elements of these buffers: they are about to change, or just did."""
        for scope in self.stack:
            stale = [key for key, value in scope.memo.items() if value.reads & buffers]
            for key in stale:
                del scope.memo[key]

    def axis(self, name: str) -> tuple[str, int] | None:
        """The C++ name of an axis or symbol and the position of the scope that defines it."""
        for home in range(self.top, -1, -1):
            found = self.stack[home].axes.get(name)
            if found is not None:
                return found, home
        return None

    @property
    def conditional_level(self) -> int:
        """The position of the innermost scope that runs under a condition; 0 if none does."""
        return max((home for home, scope in enumerate(self.stack) if scope.conditional), default=0)

    @property
    def active(self) -> ActiveLanes | None:
        """The lanes that count at this point; ``None``: all of them."""
        for scope in reversed(self.stack):
            if scope.lanes is not None:
                return scope.lanes
            if scope.kind == "function":
                return None
        return None

    @contextmanager
    def block(
        self,
        opening: str,
        kind: ScopeKind = "loop",
        *,
        closing: str = "}",
        guard: bool = False,
        lanes: ActiveLanes | None = None,
    ) -> Iterator[Scope]:
        """A C++ block: ``opening`` and ``closing`` stand around its indented lines in the parent's text."""
        scope = Scope(kind, conditional=guard, lanes=lanes)
        self.stack.append(scope)
        yield scope
        self.stack.pop()
        parent = self.stack[-1].lines
        parent.append(opening)
        parent.extend(indented(scope.lines))
        parent.append(closing)

    @contextmanager
    def detached(self) -> Iterator[Scope]:
        """A C++ block that runs under a condition, whose lines are the caller's to place."""
        scope = Scope("block", conditional=True)
        self.stack.append(scope)
        yield scope
        self.stack.pop()

    @contextmanager
    def under(self, lanes: ActiveLanes | None, *, guard: bool) -> Iterator[Scope]:
        """A stretch of the present block with values of its own, for other active lanes if given."""
        scope = Scope("lanes", lines=self.stack[-1].lines, lanes=lanes, conditional=guard)
        self.stack.append(scope)
        yield scope
        self.stack.pop()

    @contextmanager
    def at(self, home: int) -> Iterator[None]:
        """Work in the scope at ``home`` as if those inside it were not open yet."""
        inner = self.stack[home + 1 :]
        del self.stack[home + 1 :]
        yield
        self.stack.extend(inner)


def indented(lines: Sequence[str]) -> list[str]:
    """The lines of a nested block."""
    return [f"  {line}" if line else line for line in lines]
