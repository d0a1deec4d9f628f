"""Where a node came from: carried by every operation, named by every error and report, part of no cache key."""

from __future__ import annotations

from dataclasses import dataclass


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
