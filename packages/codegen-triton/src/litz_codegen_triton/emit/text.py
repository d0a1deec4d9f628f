"""What the emitted text is made of: names, values, and scopes that lines are written to."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Hashable
from dataclasses import dataclass, field

_RESERVED = frozenset(dir(builtins)) | frozenset(keyword.kwlist) | {"tl", "triton", "libdevice"}
_NOT_IN_NAMES = re.compile(r"\W+")
_TYPED = re.compile(r"litz_\w+")


class NameAllocator:
    """Gives out identifiers, each once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def fresh(self, base: str) -> str:
        """``base`` as an identifier that is neither taken nor a word of Python, numbered where need be."""
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

    ``dims`` are the tile dimensions along which it varies: its shape is 1 along the others, and a scalar when there is
    none. ``depth`` is the loop depth from which on it exists.
    """

    text: str
    dims: frozenset[str] = frozenset()
    depth: int = 0
    literal: bool = False


@dataclass(slots=True)
class CodeBlock:
    """The lines of one loop body and what has been computed in it."""

    header: str = ""
    lines: list[str] = field(default_factory=list)
    memo: dict[Hashable, EmittedValue] = field(default_factory=dict)


class CodeWriter:
    """Writes lines into nested scopes; what does not depend on a loop is written in front of it."""

    def __init__(self) -> None:
        self.names = NameAllocator()
        self.scopes = [CodeBlock()]

    @property
    def depth(self) -> int:
        """The number of loops that are open."""
        return len(self.scopes) - 1

    def line(self, text: str, depth: int | None = None) -> None:
        """Write a line into the scope at ``depth``, by default the innermost."""
        self.scopes[self.depth if depth is None else depth].lines.append(text)

    def define(self, base: str, text: str, dims: frozenset[str], depth: int) -> EmittedValue:
        """Give ``text`` a name."""
        name = self.names.fresh(base)
        self.line(f"{name} = {text}", depth)
        return EmittedValue(name, dims, depth)

    def known(self, key: Hashable) -> EmittedValue | None:
        """What was remembered under ``key`` in a scope that is open."""
        for scope in reversed(self.scopes):
            found = scope.memo.get(key)
            if found is not None:
                return found
        return None

    def remember(self, key: Hashable, value: EmittedValue) -> EmittedValue:
        """Remember ``value`` as long as its scope is open."""
        self.scopes[value.depth].memo[key] = value
        return value

    def open(self, header: str) -> None:
        """Begin a loop."""
        self.scopes.append(CodeBlock(header))

    def close(self) -> None:
        """End the innermost loop."""
        scope = self.scopes.pop()
        self.line(scope.header)
        for line in scope.lines or ["pass"]:
            self.line("    " + line)

    def text(self) -> str:
        """All lines; no loop may be open."""
        return "\n".join(self.scopes[0].lines)
