"""Emitted Python text: names, values, and nested scopes of lines."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

_RESERVED = frozenset(dir(builtins)) | frozenset(keyword.kwlist) | {"tl", "triton", "libdevice"}
_NOT_IN_NAMES = re.compile(r"\W+")
_TYPED = re.compile(r"litz_\w+")


class _NameAllocator:
    """Allocator of unique identifiers."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def fresh(self, base: str) -> str:
        """Return ``base`` as a new identifier, with a number if it is taken or has a meaning in Python or Triton."""
        stem = _NOT_IN_NAMES.sub("_", base).strip("_") or "value"
        if stem[0].isdigit() or _TYPED.fullmatch(stem):
            stem = f"v_{stem}"
        name = stem
        while name in self._taken or name in _RESERVED:
            number = self._next[stem] = self._next.get(stem, 0) + 1
            name = f"{stem}_{number}"
        self._taken.add(name)
        return name


@dataclass(frozen=True, slots=True)
class EmittedValue:
    """An emitted value: a name, a literal, or a short arithmetic expression over indices.

    Its shape is 1 along the dimensions of the tile that are not in ``dims``; without any it is a scalar.
    """

    text: str
    """Python expression."""

    dims: frozenset[str] = frozenset()
    """Letters of the tile dimensions along which it varies."""

    depth: int = 0
    """Number of loops inside of which it is defined."""

    literal: bool = False
    """True for a literal."""


@dataclass(slots=True)
class _CodeBlock:
    """One scope: the body of a loop or condition, or the whole text."""

    header: str = ""
    """Line that opens the scope; empty for the whole text."""

    lines: list[str] = field(default_factory=list)
    """Lines of the scope, without indentation."""

    memo: dict[Hashable, EmittedValue] = field(default_factory=dict)
    """Values that are defined in the scope, for common subexpression elimination."""


class CodeWriter:
    """Writer of lines into nested scopes; values that do not depend on a loop can be written before it."""

    def __init__(self) -> None:
        self.names = _NameAllocator()
        self.scopes = [_CodeBlock()]
        self._least_depth = 0

    @property
    def depth(self) -> int:
        """Number of open scopes inside the outermost one."""
        return len(self.scopes) - 1

    def line(self, text: str, depth: int | None = None) -> None:
        """Write a line to the scope at ``depth``, by default the innermost one."""
        self.scopes[self.depth if depth is None else depth].lines.append(text)

    def define(self, base: str, text: str, dims: frozenset[str], depth: int) -> EmittedValue:
        """Assign ``text`` to a new variable in the scope at ``depth``, or in that of the innermost condition."""
        name, depth = self.names.fresh(base), max(depth, self._least_depth)
        self.line(f"{name} = {text}", depth)
        return EmittedValue(name, dims, depth)

    def derive(self, base: str, text: str, operands: Sequence[EmittedValue]) -> EmittedValue:
        """Assign ``text`` to a new variable with the dimensions and the depth of its operands."""
        dims = frozenset().union(*(operand.dims for operand in operands))
        return self.define(base, text, dims, max((operand.depth for operand in operands), default=0))

    def known(self, key: Hashable) -> EmittedValue | None:
        """Return the value that was remembered under ``key`` in an open scope."""
        for scope in reversed(self.scopes):
            found = scope.memo.get(key)
            if found is not None:
                return found
        return None

    def remember(self, key: Hashable, value: EmittedValue) -> EmittedValue:
        """Remember ``value`` under ``key`` while its scope is open, and return it."""
        self.scopes[value.depth].memo[key] = value
        return value

    def open(self, header: str) -> None:
        """Open a scope inside the innermost one, such as a loop."""
        self.scopes.append(_CodeBlock(header))

    def close(self) -> None:
        """Close the innermost scope."""
        scope = self.scopes.pop()
        self.line(scope.header)
        for line in scope.lines or ["pass"]:
            self.line("    " + line)

    @contextmanager
    def condition(self, header: str) -> Iterator[None]:
        """Open the scope of a condition, in which all variables are defined that are new meanwhile."""
        self.open(header)
        outside, self._least_depth = self._least_depth, self.depth
        yield
        self._least_depth = outside
        self.close()

    def text(self) -> str:
        """Return all lines; no scope but the outermost may be open."""
        return "\n".join(self.scopes[0].lines)
