"""Checks of the fields of what a target states about its device."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches

from litz_ir.errors import TargetError

Check = Callable[[object], str]
"""Function that says what is wrong with a value, as words after the field's name; empty if it is right."""


def check_fields(data: object, checks: Mapping[str, Check]) -> None:
    """Check each field of ``data``; raises :class:`TargetError` with the field, its value and what belongs there."""
    for name, check in checks.items():
        wrong = check(getattr(data, name))
        if wrong:
            raise TargetError(f"{name} {wrong}", hint=f"see litz_ir.target.{type(data).__name__}")


def accepts(test: Callable[[object], bool], expected: str) -> Check:
    """A check that a value passes a test; ``expected`` says what does."""
    return lambda value: "" if test(value) else f"is {value!r:.80}, but {expected} belongs there"


def nonempty_text() -> Check:
    """A check that a value is a string with characters."""
    return accepts(lambda value: isinstance(value, str) and value != "", "a string that is not empty")


def instance(kind: type, expected: str) -> Check:
    """A check that a value is of a class."""
    return accepts(lambda value: isinstance(value, kind), expected)


def at_least(low: int) -> Check:
    """A check that a value is an int, and no bool, from ``low`` on."""
    return accepts(lambda value: type(value) is int and value >= low, f"an int of at least {low}")


def power_of_two(*, or_zero: bool = False) -> Check:
    """A check that a value is an int and a power of two; ``or_zero`` allows 0 as well."""

    def test(value: object) -> bool:
        return type(value) is int and value >= 0 and value & (value - 1) == 0 and (or_zero or value > 0)

    return accepts(test, "0 or a power of two" if or_zero else "a power of two")


def finite(*, or_zero: bool = False) -> Check:
    """A check that a value is a finite number above 0; ``or_zero`` allows 0 as well."""

    def test(value: object) -> bool:
        if type(value) is not int and type(value) is not float:
            return False
        return math.isfinite(value) and (value > 0 or (or_zero and value == 0))

    return accepts(test, f"a finite number {'of at least' if or_zero else 'above'} 0")


def flag() -> Check:
    """A check that a value is True or False."""
    return accepts(lambda value: type(value) is bool, "True or False")


def names_of(known: Collection[str], table: str, further: str = "") -> Check:
    """A check that a value is ``None`` or a frozenset of names that are in ``known`` or equal ``further``."""

    def check(value: object) -> str:
        expected = f"None or a frozenset of names of {table}"
        if value is None:
            return ""
        if not isinstance(value, frozenset):
            return f"is {value!r:.80}, but {expected} belongs there"
        unknown = sorted(repr(each) for each in value if each not in known and each != further)
        if not unknown:
            return ""
        near = [each for name in unknown for each in get_close_matches(name.strip("'"), known, n=2)]
        did_you_mean = f" (did you mean {' or '.join(dict.fromkeys(near))}?)" if near else ""
        return f"has {', '.join(unknown)}{did_you_mean}, but {expected} belongs there"

    return check
