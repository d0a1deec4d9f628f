"""Origins of operations in the user's program, named by every error and report and part of no cache key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

__all__ = ["Origin", "UNKNOWN", "abbreviated_list", "describe_locations"]


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of an operation: FX node, module and the user's line."""

    node: str = ""
    """Name of the FX node, such as ``"relu_1"``."""
    operation: str = ""
    """The operator that it calls, such as ``"aten.relu.default"``."""
    module: str = ""
    """Dotted path of the module in the user's model."""
    file: str = ""
    """File of the user's line."""
    line: int = 0
    """Number of the user's line, from 1; 0 if unknown."""
    source: str = ""
    """Text of the user's line."""

    def __bool__(self) -> bool:
        return bool(self.node or self.file)

    def describe(self) -> str:
        """One line of text: ``relu_1 (aten.relu.default) at model.py:12: x = x.relu()``."""
        parts = [self.node or "<unknown>"]
        if self.operation:
            parts.append(f"({self.operation})")
        if self.file:
            parts.append(f"at {self.file}:{self.line}" + (f": {self.source.strip()}" if self.source else ""))
        return " ".join(parts)


UNKNOWN = Origin()
"""The origin of an operation without a known source."""

_MAX_NAMES = 3
"""Most names that an abbreviated list spells out."""


def abbreviated_list(names: Iterable[str]) -> str:
    """A list of names as text, the first few of many: ``a, b, c and 5 more``."""
    given = list(dict.fromkeys(names))
    rest = len(given) - _MAX_NAMES
    listed = given if rest < 2 else [*given[:_MAX_NAMES], f"and {rest} more"]
    return ", ".join(listed).replace(", and", " and")


def describe_locations(origins: Iterable[Origin]) -> tuple[str, ...]:
    """One line of text for each source location, as :meth:`Origin.describe` gives it, with the names of all
    its nodes.
    """
    found: dict[Origin, list[str]] = {}
    for each in origins:
        if each:
            found.setdefault(replace(each, node="", module=""), []).append(each.node)
    return tuple(
        replace(location, node=abbreviated_list(nodes)).describe() for location, nodes in found.items()
    )
