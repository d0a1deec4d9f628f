"""The scheduler's own options as a line of text, for those who want to see what another plan would have cost."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

from litz_ir.errors import ConfigError
from litz_scheduler import SchedulerOptions

_TYPES: Mapping[str, Any] = get_type_hints(SchedulerOptions)


def forced(text: str) -> dict[str, int | str | frozenset[str]]:
    """``siblings=0 lanes=outer`` as fields of :class:`litz_scheduler.SchedulerOptions` and their values.

    Numbers are decimal, flags 0 or 1, sets of names separated by commas. Raises :class:`ConfigError` for other names
    and values.
    """
    return dict(_field(word) for word in text.split())


def _field(word: str) -> tuple[str, int | str | frozenset[str]]:
    name, _, value = word.partition("=")
    if name not in _TYPES:
        near = difflib.get_close_matches(name, _TYPES, n=1) or list(_TYPES)
        raise ConfigError(f"the scheduler has no option {name!r}", hint=f"did you mean {' or '.join(near)}?")
    if _TYPES[name] == frozenset[str]:
        return name, frozenset(filter(None, value.split(",")))
    names = get_args(_TYPES[name])
    if names:
        accepted, wanted = value in names, " or ".join(names)
    elif _TYPES[name] is bool:
        accepted, wanted = value in ("0", "1"), "0 or 1"
    else:
        accepted, wanted = value.isdecimal(), "a number"
    if not accepted:
        raise ConfigError(f"the scheduler's option {name!r} takes {wanted}, got {value!r}")
    if names:
        return name, value
    return name, value == "1" if _TYPES[name] is bool else int(value)
