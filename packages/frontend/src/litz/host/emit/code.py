"""Python source with the variables that it mentions, and lines of a function made of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """An expression or a statement."""

    text: str
    """The source text."""

    uses: tuple[str, ...] = ()
    """Local variables that it mentions, in order."""

    def __str__(self) -> str:
        return self.text


Fragment = Code | str | int
"""Source that code is composed of; texts and numbers mention no variable."""


def code(template: str, *parts: Fragment) -> Code:
    """Return ``template`` with the parts in place of its ``{}``."""
    return Code(template.format(*parts), _uses(parts))


def joined(parts: Iterable[Fragment]) -> Code:
    """Return the parts with commas between them."""
    found = tuple(parts)
    return Code(", ".join(map(str, found)), _uses(found))


def listed(parts: Iterable[Fragment]) -> Code:
    """Return the items of a tuple without parentheses: ``a, b`` or ``a,``."""
    found = tuple(parts)
    return code("{},", found[0]) if len(found) == 1 else joined(found)


def tuple_of(parts: Iterable[Fragment]) -> Code:
    """Return a tuple: ``(a, b)``, ``(a,)`` or ``()``."""
    return code("({})", listed(parts))


def assigned(targets: Sequence[Fragment], value: Code) -> Code:
    """Return the statement that unpacks ``value`` into ``targets``; ``value`` alone without targets."""
    return code("{} = {}", listed(targets), value) if targets else value


def with_drops(lines: Sequence[Code]) -> Iterator[str]:
    """Yield the lines' text, each followed by a ``del`` of the variables that no later line mentions.

    So memory is freed after its last use, that of the caller's arguments included.
    """
    last: dict[str, int] = {}
    for position, line in enumerate(lines):
        last.update((name, position) for name in line.uses)
    dead: dict[int, list[str]] = {}
    for name, position in last.items():
        dead.setdefault(position, []).append(name)
    for position, line in enumerate(lines):
        yield line.text
        if position in dead and position < len(lines) - 1:
            yield f"del {', '.join(dead[position])}"


def _uses(parts: Iterable[Fragment]) -> tuple[str, ...]:
    """Return the variables that the parts mention."""
    return tuple(use for part in parts if isinstance(part, Code) for use in part.uses)
