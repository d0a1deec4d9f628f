"""Checks of the types of values in memory, from the leaves that a schema has in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from litz_ir.device import Device
from litz_ir.dtypes import DType
from litz_ir.scalar.expr import (
    Checked,
    Const,
    Index,
    Load,
    Masked,
    NestedReduction,
    Op,
    Param,
    Scalar,
    indirects_in,
)
from litz_ir.scalar.node import Expr
from litz_ir.symbols.term import Term

Check = Callable[[Any], None]
"""Function that raises :class:`Misfit` for a value of another type."""


class Misfit(Exception):
    """A value where one of another type belongs; ``str()`` gives the field's path, what belongs there and what is."""

    def __init__(self, expected: str, found: object) -> None:
        super().__init__(expected, found)
        self.path = ""
        """Path of the field, from the root: ``.operations[3].axes[0].size``."""
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        return f"{self.expected} belongs there, found {_described(self.found)}"


def _described(found: object) -> str:
    """The type of a value, with the value itself where that is short."""
    text = repr(found)
    name = type(found).__name__
    article = "an" if name[0] in "aeiouAEIOU" else "a"
    return f"{article} {name}" + (f": {text}" if len(text) <= 60 and "\n" not in text else "")


def with_path(check: Check, value: Any, step: str) -> None:
    """Check a part of a value; a misfit in it tells ``step`` as the first part of its path."""
    try:
        check(value)
    except Misfit as misfit:
        misfit.path = step + misfit.path
        raise


@cache
def exactly(kind: type) -> Check:
    """A check that a value is of a class, and of no subclass of it: ``True`` is no ``int`` here."""

    def check(value: Any) -> None:
        if type(value) is not kind:
            raise Misfit(kind.__name__, value)

    return check


def check_device(value: Any) -> None:
    """Check a device: its kind is a string, its number an int."""
    exactly(Device)(value)
    with_path(exactly(str), value.kind, ".kind")
    with_path(exactly(int), value.index, ".index")


def check_term(value: Any) -> None:
    """Check a term, with the expressions of its indirect indices."""
    if not isinstance(value, Term):
        raise Misfit("Term", value)
    for atom in indirects_in(value):
        with_path(check_expr, atom.value, f"<{atom}>")


def check_expr(root: Any) -> None:
    """Check an expression with all nodes below it, those of indirect indices too, each once."""
    seen: set[int] = set()
    stack: list[tuple[Any, str]] = [(root, "")]
    while stack:
        node, path = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        checks = _FIELDS.get(type(node))
        if checks is None:
            raise _at(Misfit("Expr", node), path)
        with_path(exactly(DType), node.dtype, f"{path}.dtype")
        for name, check in checks.items():
            value = getattr(node, name)
            with_path(check, value, f"{path}.{name}")
            stack += _below(check, value, f"{path}.{name}")


def _below(check: Check, value: Any, path: str) -> Iterator[tuple[Any, str]]:
    """Yield the expressions in a checked field, each with its path."""
    if check is _check_argument:
        yield value, path
    elif check is _check_arguments:
        yield from ((each, f"{path}[{k}]") for k, each in enumerate(value))
    elif check is _check_size:
        yield from ((atom.value, f"{path}<{atom}>") for atom in indirects_in(value))
    elif check is _check_index:
        for k, each in enumerate(value):
            yield from _below(_check_size, each, f"{path}[{k}]")
    elif check is _check_axes:
        for k, (_, size) in enumerate(value):
            yield from _below(_check_size, size, f"{path}[{k}][1]")


def _check_argument(value: Any) -> None:
    if not isinstance(value, Expr):
        raise Misfit("Expr", value)


def _check_arguments(value: Any) -> None:
    exactly(tuple)(value)


def _at(misfit: Misfit, path: str) -> Misfit:
    misfit.path = path
    return misfit


def _check_size(value: Any) -> None:
    if type(value) is not int and not isinstance(value, Term):
        raise Misfit("int or Term", value)


def _check_index(value: Any) -> None:
    exactly(tuple)(value)
    for position, each in enumerate(value):
        with_path(_check_size, each, f"[{position}]")


def _check_axes(value: Any) -> None:
    exactly(tuple)(value)
    for position, each in enumerate(value):
        if type(each) is not tuple or len(each) != 2:
            raise _at(Misfit("a pair of a name and a size", each), f"[{position}]")
        with_path(exactly(str), each[0], f"[{position}][0]")
        with_path(_check_size, each[1], f"[{position}][1]")


_FIELDS: Mapping[type[Expr], Mapping[str, Check]] = {
    Const: {},  # its constructor converts the value
    Index: {"term": _check_size},
    Scalar: {"name": exactly(str)},
    Param: {"position": exactly(int)},
    Load: {"buffer": exactly(str), "index": _check_index},
    Op: {"name": exactly(str), "args": _check_arguments},
    Masked: {"cond": _check_argument, "body": _check_argument, "other": _check_argument},
    Checked: {"cond": _check_argument, "body": _check_argument, "fault": exactly(str)},
    NestedReduction: {"axes": _check_axes, "body": _check_argument},
}
"""The checks of each field, by the class of an expression; the nodes below it are checked after it."""
