"""JSON as text that people can read."""

from __future__ import annotations

import json
from typing import Any

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
