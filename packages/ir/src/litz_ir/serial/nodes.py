"""Terms and expressions as one table of nodes, in which each entry refers to earlier ones, so common nodes occur once.

An entry is a list that starts with its tag. Sizes inside are ints, or ``[k]`` for the term in entry ``k``; expressions
are positions. Terms and expressions share the table because indirect indices contain expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from litz_ir.dtypes import dtype
from litz_ir.errors import SerialError
from litz_ir.faults import FAULTS
from litz_ir.scalar.expr import (
    Checked,
    Const,
    Index,
    Indirect,
    Load,
    Masked,
    NestedReduction,
    Op,
    Param,
    Scalar,
)
from litz_ir.scalar.node import Expr, walk
from litz_ir.symbols.extrema import maximum, minimum
from litz_ir.symbols.nodes import FloorDiv, Max, Min, Mod, Product, Sum
from litz_ir.symbols.polynomials import add, mul
from litz_ir.symbols.quotients import floordiv, mod
from litz_ir.symbols.term import Size, Symbol, Term, symbol

Json = Any
"""Data of the JSON module, which has no more exact type."""


class NodeWriter:
    """Collects the entries of a table; equal nodes become one entry."""

    def __init__(self) -> None:
        self.entries: list[Json] = []
        self._positions: dict[Term | Expr, int] = {}

    def size(self, size: Size) -> Json:
        """A size inside an entry."""
        return size if isinstance(size, int) else [self.term(size)]

    def term(self, term: Term) -> int:
        """The position of a term's entry."""
        found = self._positions.get(term)
        return self._add(term, self._term_entry(term)) if found is None else found

    def expr(self, root: Expr) -> int:
        """The position of an expression's entry."""
        found = self._positions.get(root)
        if found is not None:
            return found
        for node in walk(root):
            if node not in self._positions:
                self._add(node, self._expr_entry(node))
        return self._positions[root]

    def _add(self, node: Term | Expr, entry: Json) -> int:
        position = self._positions[node] = len(self.entries)
        self.entries.append(entry)
        return position

    def _term_entry(self, term: Term) -> Json:
        match term:
            case Symbol():
                return ["s", term.name]
            case Sum():
                return ["+", term.constant, [[self.term(child), factor] for child, factor in term.terms]]
            case Product():
                return ["*", [self.term(factor) for factor in term.factors]]
            case FloorDiv():
                return ["//", self.size(term.dividend), self.size(term.divisor)]
            case Mod():
                return ["%", self.size(term.dividend), self.size(term.divisor)]
            case Min():
                return ["min", [self.size(arg) for arg in term.args]]
            case Max():
                return ["max", [self.size(arg) for arg in term.args]]
            case Indirect():
                return ["@", self.expr(term.value), self.size(term.size), term.wrap, term.check, term.fault]
        raise TypeError(f"no serial form for a term of type {type(term).__name__}")

    def _expr_entry(self, node: Expr) -> Json:
        kind = node.dtype.name
        match node:
            case Const():
                value = node.value
                return ["c", kind, value.hex() if isinstance(value, float) else value]
            case Index():
                return ["i", self.size(node.term)]
            case Scalar():
                return ["$", kind, node.name]
            case Param():
                return ["p", kind, node.position]
            case Load():
                return ["l", kind, node.buffer, [self.size(term) for term in node.index]]
            case Op():
                return ["o", kind, node.name, [self._positions[arg] for arg in node.args]]
            case Masked():
                return ["m", *(self._positions[child] for child in node.children)]
            case Checked():
                return ["k", *(self._positions[child] for child in node.children), node.fault]
            case NestedReduction():
                axes = [[name, self.size(size)] for name, size in node.axes]
                return ["f", axes, self._positions[node.body]]
        raise TypeError(f"no serial form for an expression of type {type(node).__name__}")


class NodeReader:
    """Rebuilds the nodes of a table in order; damaged entries raise :class:`SerialError` or a built-in exception."""

    def __init__(self, entries: Json) -> None:
        self._nodes: list[Size | Expr] = []
        for entry in expect(entries, list):
            self._nodes.append(_BUILDERS[entry[0]](self, *entry[1:]))

    def _node(self, position: Json) -> Size | Expr:
        if type(position) is not int or not 0 <= position < len(self._nodes):
            raise SerialError(f"{position!r} is not an earlier node")
        return self._nodes[position]

    def term(self, position: Json) -> Size:
        """The term in an entry."""
        found = self._node(position)
        if isinstance(found, Expr):
            raise SerialError(f"node {position} is an expression, but a term is expected")
        return found

    def expr(self, position: Json) -> Expr:
        """The expression in an entry."""
        found = self._node(position)
        if not isinstance(found, Expr):
            raise SerialError(f"node {position} is a term, but an expression is expected")
        return found

    def size(self, data: Json) -> Size:
        """A size inside an entry."""
        if type(data) is int:
            return data
        (position,) = expect(data, list)
        return self.term(position)

    def sizes(self, data: Json) -> tuple[Size, ...]:
        """Sizes inside an entry."""
        return tuple([self.size(item) for item in expect(data, list)])


def expect(data: Json, kind: type) -> Json:
    """The data, if it has exactly that type; raises :class:`SerialError`."""
    if type(data) is not kind:
        raise SerialError(f"expected {kind.__name__}, found {data!r:.60}")
    return data


def _sum(reader: NodeReader, constant: Json, children: Json) -> Size:
    terms = [mul(reader.term(position), expect(factor, int)) for position, factor in expect(children, list)]
    return add(expect(constant, int), *terms)


def _indirect(reader: NodeReader, value: Json, size: Json, wrap: Json, check: Json, fault: Json) -> Size:
    if check not in ("assumed", "clamped", "raised"):
        raise SerialError(f"{check!r} is not a bounds check")
    return Indirect(reader.expr(value), reader.size(size), expect(wrap, bool), check, _fault(fault))


def _fault(name: Json) -> str:
    if name not in FAULTS:
        raise SerialError(f"{name!r} is not a fault")
    return str(name)


def _const(reader: NodeReader, kind: Json, value: Json) -> Expr:
    d = dtype(kind)
    if d.is_float:
        return Const(float.fromhex(expect(value, str)), d)
    return Const(expect(value, bool if d.is_bool else int), d)


def _op(reader: NodeReader, kind: Json, name: Json, args: Json) -> Expr:
    return Op(expect(name, str), tuple([reader.expr(arg) for arg in expect(args, list)]), dtype(kind))


def _nested_reduction(reader: NodeReader, axes: Json, body: Json) -> Expr:
    pairs = [(expect(name, str), reader.size(size)) for name, size in expect(axes, list)]
    return NestedReduction(tuple(pairs), reader.expr(body))


_BUILDERS: Mapping[str, Callable[..., Size | Expr]] = MappingProxyType(
    {
        "s": lambda reader, name: symbol(expect(name, str)),
        "+": _sum,
        "*": lambda reader, factors: mul(*[reader.term(factor) for factor in expect(factors, list)]),
        "//": lambda reader, a, b: floordiv(reader.size(a), reader.size(b)),
        "%": lambda reader, a, b: mod(reader.size(a), reader.size(b)),
        "min": lambda reader, args: minimum(*reader.sizes(args)),
        "max": lambda reader, args: maximum(*reader.sizes(args)),
        "@": _indirect,
        "c": _const,
        "i": lambda reader, term: Index(reader.size(term)),
        "$": lambda reader, kind, name: Scalar(expect(name, str), dtype(kind)),
        "p": lambda reader, kind, position: Param(expect(position, int), dtype(kind)),
        "l": lambda reader, kind, buffer, index: Load(expect(buffer, str), reader.sizes(index), dtype(kind)),
        "o": _op,
        "m": lambda reader, *children: Masked(*[reader.expr(child) for child in children]),
        "f": _nested_reduction,
        "k": lambda reader, cond, body, fault: Checked(reader.expr(cond), reader.expr(body), _fault(fault)),
    }
)
