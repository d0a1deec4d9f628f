"""Scopes: nested blocks of one C++ function, and the values known in each.

A value is defined in the outermost scope in which all its operands are known, so that loop-invariant code is hoisted.
A scope remembers its values, so that nothing is computed twice. The text of a scope is appended to its parent's when
it closes, so that code hoisted from an open inner loop precedes that loop.
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
    """A value in C++."""

    registers: tuple[str, ...]
    """A text for each register, or one text that serves all of them."""
    dtype: DType
    """Its dtype."""
    scope_level: int
    """The level of the scope that defines it; 0 is the outermost."""
    varying: bool = False
    """True where lanes differ."""
    reads: frozenset[str] = frozenset()
    """The buffers written by the kernel on whose elements it depends."""

    def register(self, number: int) -> str:
        """Return the text for one register."""
        return self.registers[number] if len(self.registers) > 1 else self.registers[0]

    def within(self, level: int) -> CppValue:
        """Return the value as one of the scope at ``level``, for scopes that are no C++ blocks and close without a
        brace."""
        return self if self.scope_level <= level else replace(self, scope_level=level)


@dataclass(frozen=True, slots=True)
class ActiveLanes:
    """The lanes that take part in a store or a check."""

    count: str = ""
    """The number of active leading lanes of a register, as text."""
    masks: tuple[str, ...] = ()
    """A mask for each register, as text, in place of ``count``."""

    def mask(self, number: int) -> str:
        """Return the text of the mask of a register."""
        return self.masks[number] if self.masks else f"first_lanes({self.count})"


@dataclass(slots=True)
class Scope:
    """A stretch of code in a C++ function."""

    kind: ScopeKind
    """``function``, ``loop``, ``block``, or ``lanes`` for one that is no C++ block and appends to its parent's lines.
    """
    lines: list[str] = field(default_factory=list)
    """The lines of text."""
    memo: dict[Hashable, CppValue] = field(default_factory=dict)
    """The values remembered in it."""
    axes: dict[str, str] = field(default_factory=dict)
    """The C++ names of axes and symbols that it defines."""
    lanes: ActiveLanes | None = None
    """The active lanes in it, where they differ from the parent's."""
    conditional: bool = False
    """True where it runs under a condition, so that its loads are not hoisted out of it."""


class Scopes:
    """The stack of open scopes, outermost first."""

    def __init__(self) -> None:
        self.stack: list[Scope] = [Scope("function")]

    @property
    def top(self) -> int:
        """The level of the innermost open scope."""
        return len(self.stack) - 1

    def line(self, text: str, level: int | None = None) -> None:
        """Append a line to the scope at ``level``, by default the innermost one."""
        self.stack[-1 if level is None else level].lines.append(text)

    def find(self, key: Hashable) -> CppValue | None:
        """Return the value remembered under ``key`` in an open scope, else None."""
        for scope in reversed(self.stack):
            found = scope.memo.get(key)
            if found is not None:
                return found
        return None

    def remember(self, key: Hashable, value: CppValue) -> CppValue:
        """Remember a value in its scope until that closes."""
        self.stack[value.scope_level].memo[key] = value
        return value

    def forget(self, buffers: frozenset[str]) -> None:
        """Drop all values that depend on elements of these buffers, since stores change them."""
        for scope in self.stack:
            stale = [key for key, value in scope.memo.items() if value.reads & buffers]
            for key in stale:
                del scope.memo[key]

    def axis(self, name: str) -> tuple[str, int] | None:
        """Return the C++ name of an axis or symbol and the level of the scope that defines it."""
        for level in range(self.top, -1, -1):
            found = self.stack[level].axes.get(name)
            if found is not None:
                return found, level
        return None

    @property
    def conditional_level(self) -> int:
        """The level of the innermost conditional scope; 0 if there is none."""
        return max((level for level, scope in enumerate(self.stack) if scope.conditional), default=0)

    @property
    def active(self) -> ActiveLanes | None:
        """The active lanes at this point; ``None`` for all."""
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
        conditional: bool = False,
        lanes: ActiveLanes | None = None,
    ) -> Iterator[Scope]:
        """Open a C++ block, whose indented lines are appended between ``opening`` and ``closing`` to the parent's."""
        scope = Scope(kind, conditional=conditional, lanes=lanes)
        self.stack.append(scope)
        yield scope
        self.stack.pop()
        parent = self.stack[-1].lines
        parent.append(opening)
        parent.extend(indented(scope.lines))
        parent.append(closing)

    @contextmanager
    def detached(self) -> Iterator[Scope]:
        """Open a conditional C++ block whose lines the caller appends."""
        scope = Scope("block", conditional=True)
        self.stack.append(scope)
        yield scope
        self.stack.pop()

    @contextmanager
    def under(self, lanes: ActiveLanes | None, *, conditional: bool) -> Iterator[Scope]:
        """Open a scope within the current block, with values of its own and other active lanes if given."""
        scope = Scope("lanes", lines=self.stack[-1].lines, lanes=lanes, conditional=conditional)
        self.stack.append(scope)
        yield scope
        self.stack.pop()

    @contextmanager
    def at(self, level: int) -> Iterator[None]:
        """Work in the scope at ``level`` as if the scopes inside it were not open."""
        inner = self.stack[level + 1 :]
        del self.stack[level + 1 :]
        yield
        self.stack.extend(inner)


def indented(lines: Sequence[str]) -> list[str]:
    """Return the lines of a nested block."""
    return [f"  {line}" if line else line for line in lines]
