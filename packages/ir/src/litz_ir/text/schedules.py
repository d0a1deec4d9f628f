"""Text form of schedules, derived from the fields of their forms in :mod:`litz_ir.plan.schedule`.

A schedule is the name of its form, then the fields that differ from their defaults, in order: the name and the value of
each, the name alone of a flag.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from functools import cache, partial
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, cast, get_args, get_origin, get_type_hints

from litz_ir.plan.schedule import BUFFER, InnerTile, Schedule, Tile
from litz_ir.text.lexer import Stream, read_whole, separated
from litz_ir.text.spelling import name_text, value_text


def print_schedule(schedule: Schedule) -> str:
    """The text form of a schedule: the name of its form, then the fields that differ from their defaults."""
    form: type = type(schedule)
    return " ".join([_form_name(form), *_words(schedule, _fields(form))])


def parse_schedule(text: str) -> Schedule:
    """Parse the text form of a schedule; raises :class:`ParseError`."""
    return read_whole(text, schedule)


def schedule(stream: Stream) -> Schedule:
    """The name of a form, then its fields in order."""
    form = _FORMS[stream.word("the form of a schedule", tuple(_FORMS))]
    return cast(Schedule, form(**_read(stream, _fields(form))))


@dataclass(frozen=True, slots=True)
class _Spelling:
    """Spelling of the values of one type."""

    text: Callable[[Any], str]
    """Function from a value to its text."""
    read: Callable[[Stream], Any]
    """Function that reads a value."""


@dataclass(frozen=True, slots=True)
class _Field:
    """Field of a form."""

    name: str
    """Name of the field, which is written before its value."""
    default: object
    """Value that is left out, which no names are; ``MISSING`` without one."""
    spelling: _Spelling | None
    """Spelling of its values; ``None`` for a flag."""


def _form_name(form: type) -> str:
    """Return the name of a form in text: ``cpu_loops`` for ``CpuLoops``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", form.__name__).lower()


_FORMS: Mapping[str, type] = MappingProxyType({_form_name(form): form for form in get_args(Schedule)})


@cache
def _fields(form: type, after: int = 0) -> tuple[_Field, ...]:
    hints = get_type_hints(form, include_extras=True)
    return tuple(_field(each, hints[each.name]) for each in dataclasses.fields(form)[after:])


def _field(field: dataclasses.Field[Any], hint: Any) -> _Field:
    if hint is bool:
        return _Field(field.name, field.default, None)
    if field.default is None:
        (hint, _) = get_args(hint)
    default = () if hint == tuple[str, ...] else field.default
    return _Field(field.name, default, _spelling(hint))


def _words(value: object, fields: tuple[_Field, ...]) -> list[str]:
    words = []
    for field in fields:
        found = getattr(value, field.name)
        if field.default is not MISSING and found == field.default:
            continue
        text = "" if field.spelling is None else field.spelling.text(found)
        words.append(f"{field.name}{text}" if text[:1] in ("", "(") else f"{field.name} {text}")
    return words


def _read(stream: Stream, fields: tuple[_Field, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields:
        if field.default is MISSING:
            stream.expect(field.name)
        elif not stream.accept(field.name):
            found[field.name] = field.default
            continue
        found[field.name] = True if field.spelling is None else field.spelling.read(stream)
    return found


def _spelling(hint: Any) -> _Spelling:
    """Return the spelling of the values of a type hint; raises ``TypeError`` for a type that has none."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is int:
        return _Spelling(str, Stream.integer)
    if hint is str:
        return _Spelling(name_text, lambda stream: stream.name("an axis"))
    if origin is Annotated:
        return _Spelling(value_text, Stream.value) if BUFFER in args else _spelling(args[0])
    if origin is Literal:
        return _Spelling(str, lambda stream: stream.word("a choice", args))
    if hint in (Tile, InnerTile):
        return _Spelling(_tile_text, partial(_tile, hint))
    if origin is tuple and args[-1] is Ellipsis:
        item = _spelling(args[0])
        return _Spelling(
            lambda value: f"({', '.join(map(item.text, value))})",
            lambda stream: separated(stream, lambda: item.read(stream)),
        )
    if hint == tuple[str, int]:
        return _Spelling(lambda value: f"{name_text(value[0])}: {value[1]}", _block)
    if origin is UnionType and args == (InnerTile, NoneType):
        return _Spelling(
            lambda value: "point" if value is None else _tile_text(value),
            lambda stream: None if stream.accept("point") else _tile(InnerTile, stream),
        )
    raise TypeError(f"{hint!r} has no text form: give it one in litz_ir.text.schedules")


def _block(stream: Stream) -> tuple[str, int]:
    name = stream.name("an axis")
    stream.expect(":")
    return name, stream.integer()


def _tile_text(tile: Tile | InnerTile) -> str:
    """Return ``(axis, axis: block)``, and the other fields."""
    block = f": {tile.block}" if tile.block != 1 else ""
    axes = f"({', '.join(map(name_text, tile.axes))}{block})"
    form: type = type(tile)
    return " ".join([axes, *_words(tile, _fields(form, after=2))])


def _tile(form: type, stream: Stream) -> Tile | InnerTile:
    stream.expect("(")
    axes: list[str] = []
    while not (stream.at(")") or stream.at(":")):
        axes.append(stream.name("an axis"))
        if not stream.accept(","):
            break
    block = stream.integer() if stream.accept(":") else 1
    stream.expect(")")
    return cast(Tile | InnerTile, form(tuple(axes), block, **_read(stream, _fields(form, after=2))))
