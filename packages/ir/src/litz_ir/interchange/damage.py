"""Errors about documents, each with the JSON path of what is wrong."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from litz_ir.errors import SerialError

Json = Any
"""Data of the JSON module, which has no more exact type."""

_MAX_SHOWN = 40
"""Most characters of a value that an error shows."""
_FORMS: dict[type, str] = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}
"""The names of JSON's types by the class that Python reads them as."""


def form_of(data: Json) -> str:
    """The class of an object, ``reference`` for a reference to an expression, or the JSON type of other data."""
    if type(data) is dict:
        name = data.get("class")
        if type(name) is str:
            return name
        return "reference" if "expression" in data else "object"
    return _FORMS[type(data)]


def damaged(path: str, expected: str, data: Json) -> NoReturn:
    """Raise the error that ``data`` at ``path`` is not what is expected."""
    raise SerialError(f"{path}: expected {expected}, found {_described(data)}")


def expect(data: Json, kind: type, path: str) -> Json:
    """The data, if Python reads its JSON type as ``kind``; raises :class:`SerialError`."""
    if type(data) is not kind:
        damaged(path, _FORMS[kind], data)
    return data


def _described(data: Json) -> str:
    """The value as JSON, or the form of a longer one."""
    if type(data) is dict:
        form = form_of(data)
        named = {"object": "object without a class", "reference": "reference to an expression"}
        return named.get(form) or f"object of class {form:.{_MAX_SHOWN}}"
    if type(data) is list:
        return f"array of {len(data)}"
    shown = json.dumps(data)
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}…"
