"""Where a node came from: carried by every operation, named by every error and report, part of no cache key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of a node: the captured graph's node, the module that held it and the user's line.

    ``node`` is the name in the captured graph (``"relu_1"``), ``operation`` what was called (``"aten.relu.default"``),
    ``module`` the dotted module path in the user's model, ``file`` and ``line`` the user's source position (``line`` is
    1-based; 0 is unknown) and ``source`` the text of that line.
    """

    node: str = ""
    operation: str = ""
    module: str = ""
    file: str = ""
    line: int = 0
    source: str = ""

    def __bool__(self) -> bool:
        return bool(self.node or self.file)

    def describe(self) -> str:
        """One line for a person: ``relu_1 (aten.relu.default) at model.py:12: x = x.relu()``."""
        parts = [self.node or "<unknown>"]
        if self.operation:
            parts.append(f"({self.operation})")
        if self.file:
            parts.append(f"at {self.file}:{self.line}" + (f": {self.source.strip()}" if self.source else ""))
        return " ".join(parts)


UNKNOWN = Origin()

MAX_NAMES = 3
"""How many names are written out where there are many."""


def abbreviated_list(names: Iterable[str]) -> str:
    """Names for a person, the first few of many: ``a, b, c and 5 more``."""
    given = list(dict.fromkeys(names))
    rest = len(given) - MAX_NAMES
    shown = given if rest < 2 else [*given[:MAX_NAMES], f"and {rest} more"]
    return ", ".join(shown).replace(", and", " and")


def describe_locations(origins: Iterable[Origin]) -> tuple[str, ...]:
    """One line for a person for each place that nodes came from: what :meth:`Origin.describe` says of one of them, with
    the names of all."""
    found: dict[Origin, list[str]] = {}
    for each in origins:
        if each:
            found.setdefault(replace(each, node="", module=""), []).append(each.node)
    return tuple(replace(place, node=abbreviated_list(nodes)).describe() for place, nodes in found.items())
