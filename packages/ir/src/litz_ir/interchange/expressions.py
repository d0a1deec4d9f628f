"""The table of expressions of a document, in which each entry refers to earlier ones, so a shared one occurs once.

An entry is an object with the ``dtype`` of its value; ``{"expression": 3}`` refers to the entry at position 3.
"""

from __future__ import annotations

from litz_ir.errors import UnknownClass
from litz_ir.interchange.codecs import object_codec
from litz_ir.interchange.damage import Json, damaged, expect
from litz_ir.scalar.node import Expr, walk


class ExpressionWriter:
    """Collects the entries of a table; equal expressions become one entry."""

    def __init__(self) -> None:
        self.entries: list[Json] = []
        self._positions: dict[Expr, int] = {}

    def reference(self, expression: Expr) -> Json:
        """A reference to an expression, which is added to the table with all that it consists of."""
        if expression not in self._positions:
            for node in walk(expression):
                if node not in self._positions:
                    self._add(node)
        return {"expression": self._positions[expression]}

    def _add(self, node: Expr) -> None:
        entry = object_codec(Expr).encode(node, self)
        self._positions[node] = len(self.entries)
        self.entries.append({"class": entry["class"], "dtype": node.dtype.name, **entry})


class ExpressionReader:
    """Rebuilds the expressions of a table in order; raises :class:`SerialError` for damaged entries.

    An entry of an unknown class is an error where something refers to it: a field that a reader ignores may.
    """

    def __init__(self, entries: Json, path: str) -> None:
        self._nodes: list[Expr | UnknownClass] = []
        for position, entry in enumerate(expect(entries, list, path)):
            try:
                self._nodes.append(self._node(entry, f"{path}[{position}]"))
            except UnknownClass as error:
                self._nodes.append(error)

    def _node(self, entry: Json, path: str) -> Expr:
        node: Expr = object_codec(Expr).decode(entry, path, self)
        if entry.get("dtype") != node.dtype.name:
            damaged(f"{path}.dtype", f'"{node.dtype}", the dtype of its value', entry.get("dtype"))
        return node

    def expression(self, data: Json, path: str) -> Expr:
        """The expression that a reference refers to."""
        position = expect(data, dict, path).get("expression")
        if type(position) is not int:
            damaged(path, "reference to an expression", data)
        if not 0 <= position < len(self._nodes):
            damaged(f"{path}.expression", "position of an earlier expression", position)
        found = self._nodes[position]
        if isinstance(found, UnknownClass):
            raise found
        return found
