"""Values of options in environment variables: ``LITZ_<OPTION>``, and those of other programs that set options too.

The variables are arguments: nothing here reads the environment of the process.
"""

from __future__ import annotations

import difflib
import os
import re
import tempfile
from collections.abc import Collection, Mapping
from typing import Any

from litz_ir.errors import ConfigError

_THREADS = "TORCHINDUCTOR_COMPILE_THREADS"
"""Inductor's variable for the number of threads that compile."""

PREFIX = "LITZ_"
"""Prefix of the environment variables that set options."""

_OFF = ("LITZ_DISABLE_CACHE", "LITZ_FORCE_DISABLE_CACHES")
"""Variables that turn the option ``cache`` off where they are 1, in addition to ``LITZ_CACHE=0``."""

_BOOLEANS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}

_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def nearest(name: str, options: Collection[str]) -> list[str]:
    """Return the options that are spelled like a name, the nearest first."""
    return difflib.get_close_matches(name, options, n=3, cutoff=0.65)


def unknown_variables(environment: Mapping[str, str], options: Collection[str]) -> list[str]:
    """Return a warning for each variable ``LITZ_...`` that names no option and so has no effect."""
    known = {f"{PREFIX}{name.upper()}" for name in options} | {*_OFF}
    lines = []
    for variable in sorted(each for each in environment if each.startswith(PREFIX) and each not in known):
        found = nearest(variable.removeprefix(PREFIX).lower(), options)[:1]
        near = f"did you mean {PREFIX}{found[0].upper()}?" if found else ""
        hint = near or f"options are {', '.join(options)}"
        lines.append(f"litz: {variable} in the environment names no option and is ignored: {hint}")
    return lines


def values_in(environment: Mapping[str, str], types: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options, of these types, that variables set.

    These are ``LITZ_<OPTION>``, ``CXX`` for the compiler, ``TORCH_COMPILE_DEBUG`` for debug files, and Inductor's
    variables for the folder and the server of the cache and for the number of threads. Raises :class:`ConfigError` for
    wrong values.
    """
    values: dict[str, Any] = {}
    inductor = environment.get("TORCHINDUCTOR_CACHE_DIR")
    if inductor and not _is_default_of_inductor(inductor):
        values["cache_dir"] = os.path.join(inductor, "litz")
    if environment.get("TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE") == "1":
        host = environment.get("TORCHINDUCTOR_REDIS_HOST") or "localhost"
        values["cache_remote"] = f"redis://{host}:{environment.get('TORCHINDUCTOR_REDIS_PORT') or 6379}"
    if environment.get("CXX"):
        values["compiler"] = environment["CXX"]
    if environment.get(_THREADS):
        values["compile_threads"] = _value(_THREADS, environment[_THREADS], int)
    if environment.get("TORCH_COMPILE_DEBUG") == "1":
        values["debug_files"] = True
    for name, kind in types.items():
        variable = f"{PREFIX}{name.upper()}"
        text = environment.get(variable)
        if text:
            values[name] = _value(variable, text, kind)
    if any(_flag(each, environment[each]) for each in _OFF if environment.get(each)):
        values["cache"] = False
    return values


def quota_bytes(text: str) -> int | None:
    """Return the bytes that a quota such as ``5GB`` names; ``None`` for an empty one. Raises :class:`ConfigError` for
    other text."""
    if not text.strip():
        return None
    found = _QUANTITY.fullmatch(text)
    if found is None or found[2].lower() not in _UNITS:
        problem = f"option 'cache_quota' takes a number of bytes, got {text!r}"
        raise ConfigError(problem, hint="such as 5GB or 500MiB")
    return int(float(found[1]) * _UNITS[found[2].lower()])


def _value(variable: str, text: str, kind: Any) -> Any:
    """Return the value of an option's variable; raise :class:`ConfigError` for text that is none."""
    if kind is bool:
        return _flag(variable, text)
    if kind not in (int, float):
        return text
    try:
        return kind(text)
    except ValueError as error:
        raise ConfigError(f"{variable} takes a number, got {text!r}") from error


def _flag(variable: str, text: str) -> bool:
    """Return the value of a flag's variable; raise :class:`ConfigError` for other text than 0 and 1."""
    if text.lower() not in _BOOLEANS:
        raise ConfigError(f"{variable} takes 0 or 1, got {text!r}")
    return _BOOLEANS[text.lower()]


def _is_default_of_inductor(folder: str) -> bool:
    """Report whether Inductor chose this folder, and set the variable that names it: below the temporary folder."""
    parent, name = os.path.split(os.path.normpath(folder))
    return name.startswith("torchinductor_") and parent == os.path.normpath(tempfile.gettempdir())
