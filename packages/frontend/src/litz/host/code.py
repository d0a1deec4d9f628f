"""Pieces of Python that know which variables they mention, and the lines of a function made of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """An expression or a statement; ``uses`` are the variables of the function that it mentions, in that order."""

    text: str
    uses: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text


Fragment = Code | str | int
"""What code is put together from; text and numbers mention no variable."""


def code(template: str, *parts: Fragment) -> Code:
    """``template`` with the parts in place of its ``{}``."""
    return Code(template.format(*parts), _uses(parts))


def joined(parts: Iterable[Fragment]) -> Code:
    """The parts with commas between them."""
    found = tuple(parts)
    return Code(", ".join(map(str, found)), _uses(found))


def listed(parts: Iterable[Fragment]) -> Code:
    """The items of a tuple without its parentheses: ``a, b`` and ``a,``."""
    found = tuple(parts)
    return code("{},", found[0]) if len(found) == 1 else joined(found)


def tuple_of(parts: Iterable[Fragment]) -> Code:
    """A tuple: ``(a, b)``, ``(a,)`` and ``()``."""
    return code("({})", listed(parts))


def assigned(targets: Sequence[Fragment], value: Code) -> Code:
    """The statement that unpacks ``value`` into ``targets``; without targets ``value`` alone."""
    return code("{} = {}", listed(targets), value) if targets else value


def with_drops(lines: Sequence[Code]) -> Iterator[str]:
    """The lines' text, each followed by a ``del`` of the variables that nothing after it mentions: memory goes back as
    soon as its last view does, the caller's arguments included."""
    last: dict[str, int] = {}
    for position, line in enumerate(lines):
        last.update((name, position) for name in line.uses)
    dying: dict[int, list[str]] = {}
    for name, position in last.items():
        dying.setdefault(position, []).append(name)
    for position, line in enumerate(lines):
        yield line.text
        if position in dying and position < len(lines) - 1:
            yield f"del {', '.join(dying[position])}"


def _uses(parts: Iterable[Fragment]) -> tuple[str, ...]:
    return tuple(use for part in parts if isinstance(part, Code) for use in part.uses)
