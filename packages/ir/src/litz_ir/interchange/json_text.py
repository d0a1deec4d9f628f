"""JSON as text that people can read, and its parser, which refuses what JSON leaves undefined."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from litz_ir.errors import SerialError

_LINE = 110
"""Most characters of a line, where data can be broken."""


def json_text(data: Any) -> str:
    """JSON with an indentation of two spaces, in which an array or object that fits a line is on one."""
    return _broken(data, "", "") + "\n"


def _broken(data: Any, indent: str, name: str) -> str:
    """The lines of data, the first after ``name`` and all others after the indentation."""
    flat = name + json.dumps(data, allow_nan=False)
    if len(indent) + len(flat) < _LINE or not isinstance(data, dict | list):
        return flat
    inner = f"{indent}  "
    if isinstance(data, list):
        items = [inner + _broken(each, inner, "") for each in data]
        return f"{name}[\n" + ",\n".join(items) + f"\n{indent}]"
    items = [inner + _broken(each, inner, f"{json.dumps(key)}: ") for key, each in data.items()]
    return f"{name}{{\n" + ",\n".join(items) + f"\n{indent}}}"


def parse_json(text: str | bytes | bytearray) -> Any:
    """Parse JSON; raises ``ValueError`` for other text, and :class:`SerialError` for an object with a key twice.

    Readers disagree on the value of such a key, so a document with one has no meaning.
    """
    try:
        return json.loads(text, parse_constant=_refuse, object_pairs_hook=_object)
    except _RepeatedKey as error:
        path, key = _repeated(json.loads(text, object_pairs_hook=_Pairs), "$") or ("$", error.args[0])
        raise SerialError(
            f"{path}: expected each key once, found {json.dumps(key)[:_SHOWN]} twice",
            hint="remove one of the two fields",
        ) from None


_SHOWN = 40
"""Most characters of a key that an error shows."""


class _RepeatedKey(Exception):
    """An object with a key twice."""


class _Pairs(list[Any]):
    """The keys and values of an object in order."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _RepeatedKey(next(key for key in keys if keys.count(key) > 1))
    return found


def _repeated(data: Any, path: str) -> tuple[str, str] | None:
    """The path of an object that has a key twice, with that key; ``None`` without such an object."""
    if isinstance(data, _Pairs):
        keys = [key for key, _ in data]
        for key in keys:
            if keys.count(key) > 1:
                return path, key
        children = [(f"{path}.{key}", value) for key, value in data]
    else:
        children = [(f"{path}[{k}]", value) for k, value in enumerate(data if isinstance(data, list) else ())]
    return next((found for at, value in children if (found := _repeated(value, at))), None)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON's")
