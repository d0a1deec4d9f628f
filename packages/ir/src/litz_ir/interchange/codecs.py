"""Writing and reading of values by the type hints of the fields that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import UnionType
from typing import Any, ForwardRef, Literal, Union, get_args, get_origin

from litz_ir.errors import LitzError, SerialError, UnknownClass
from litz_ir.interchange.damage import Json, damaged, expect, form_of
from litz_ir.interchange.forms import FORMS, REQUIRED, Form, forms_of
from litz_ir.interchange.plain_codecs import BARE, PLAIN, Codec, Reader, Writer, choice
from litz_ir.loops.nodes import Argument


def codec_of(hint: Any) -> Codec:
    """The codec of a type hint; raises ``TypeError`` for a class that has no form."""
    return _codec_of(hint)


@cache
def _codec_of(hint: Any) -> Codec:
    if isinstance(hint, ForwardRef | str):
        return _later(Argument)
    if hint in PLAIN:
        return PLAIN[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return choice(args)
    if origin in (Union, UnionType):
        return _alternatives([object_codec(each) if each in BARE else codec_of(each) for each in args])
    if origin is tuple:
        return _sequence(codec_of(args[0])) if args[-1] is Ellipsis else _record(args)
    return object_codec(hint)


@cache
def object_codec(cls: type) -> Codec:
    """The codec of a class as objects, with its subclasses."""
    return _alternatives([_object(form) for form in forms_of(cls)], cls.__name__)


def _later(hint: Any) -> Codec:
    """The codec of a recursive type, looked up when it is used."""
    return Codec(
        lambda value, writer: codec_of(hint).encode(value, writer),
        lambda data, path, reader: codec_of(hint).decode(data, path, reader),
        (),
        (),
        "",
    )


def _sequence(item: Codec) -> Codec:
    encode, decode = item.encode, item.decode
    return Codec(
        lambda value, writer: [encode(each, writer) for each in value],
        lambda data, path, reader: tuple(
            [decode(each, f"{path}[{k}]", reader) for k, each in enumerate(expect(data, list, path))]
        ),
        (tuple,),
        ("array",),
        "array",
    )


def _record(hints: Sequence[Any]) -> Codec:
    """The codec of a tuple of fixed length."""
    items = [codec_of(hint) for hint in hints]

    def encode(value: Any, writer: Writer) -> Json:
        return [item.encode(each, writer) for item, each in zip(items, value, strict=True)]

    def decode(data: Json, path: str, reader: Reader) -> Any:
        if len(expect(data, list, path)) != len(items):
            damaged(path, f"array of {len(items)}", data)
        return tuple(
            [item.decode(each, f"{path}[{k}]", reader) for k, (item, each) in enumerate(zip(items, data))]
        )

    return Codec(encode, decode, (tuple,), ("array",), "array")


def _object(form: Form) -> Codec:
    """The codec of objects of one class; the alternatives that it is one of have compared the class."""
    get, make = form.get, form.make

    # Looked up on first use, since a graph contains regions, which contain graphs.
    @cache
    def codecs() -> list[tuple[str, Codec]]:
        return [(field.name, codec_of(field.hint)) for field in form.fields]

    def encode(value: Any, writer: Writer) -> Json:
        found = {"class": form.name}
        for field, (name, codec) in zip(form.fields, codecs()):
            part = get(value, name)
            if not field.is_default(part):
                found[name] = codec.encode(part, writer)
        return found

    def decode(data: Json, path: str, reader: Reader) -> Any:
        values = {}
        for field, (name, codec) in zip(form.fields, codecs()):
            if name in data:
                values[name] = codec.decode(data[name], f"{path}.{name}", reader)
            elif field.default is REQUIRED:
                absent = f"found no such field in the object of class {form.name}"
                raise SerialError(f"{path}.{name}: expected {codec.expected}, {absent}")
        try:
            return make(**values)
        except LitzError as error:
            raise SerialError(f"{path}: {error.message}") from error
        except (ArithmeticError, ValueError) as error:
            raise SerialError(f"{path}: no {form.name} has these fields: {error}") from error

    return Codec(encode, decode, (form.cls,), (form.name,), form.name)


def _alternatives(codecs: Sequence[Codec], expected: str = "") -> Codec:
    """The codec of a type of which each value has one of several types."""
    by_form = {form: codec for codec in codecs for form in codec.forms}
    by_type = {kind: codec for codec in codecs for kind in codec.types}
    expected = expected or " or ".join(dict.fromkeys(codec.expected for codec in codecs))

    @cache
    def codec_for(kind: Any) -> Codec:
        for base in kind.__mro__:
            if base in by_type:
                return by_type[base]
        raise TypeError(f"expected {expected}, found a {kind.__name__}")

    def decode(data: Json, path: str, reader: Reader) -> Any:
        form = form_of(data)
        codec = by_form.get(form)
        if codec is None:
            if type(data) is dict and type(data.get("class")) is str and form not in FORMS:
                raise UnknownClass(
                    f"{path}: expected {expected}, found object of the unknown class {form:.40}"
                )
            damaged(path, expected, data)
        return codec.decode(data, path, reader)

    def encode(value: Any, writer: Writer) -> Json:
        kind: Any = type(value)
        return codec_for(kind).encode(value, writer)

    return Codec(encode, decode, tuple(by_type), tuple(by_form), expected)
