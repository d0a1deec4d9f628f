"""Serial form of each dataclass, derived from the types of its fields, for a fixed list of classes.

A dataclass is the list of its fields. In a field that may have several types, a value that is not plain JSON is a pair
of a tag and the data: ``["t", 3]`` is a term, ``["Ref", ["x"]]`` a reference. Reading checks every type, and so does
:func:`check_fields` of data in memory, which Python lets anyone build with wrong ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import Any, ForwardRef, Literal, Union, get_args, get_origin, get_type_hints

from litz_ir.device import Device
from litz_ir.dtypes import DType, dtype
from litz_ir.errors import SerialError
from litz_ir.fused.decision import Decision, Reason
from litz_ir.fused.group import FusedGraph, Group, Member
from litz_ir.loops import nodes
from litz_ir.loops.layout import Layout
from litz_ir.origin import Origin
from litz_ir.plan import kernel, program
from litz_ir.plan import schedule as forms
from litz_ir.scalar.node import Expr
from litz_ir.serial.field_checks import Misfit, check_device, check_expr, check_term, exactly, with_path
from litz_ir.serial.nodes import Json, NodeReader, NodeWriter, expect
from litz_ir.symbols.table import SymbolInfo, SymbolTable
from litz_ir.symbols.term import Term

CLASSES: tuple[type, ...] = (
    Origin, Layout, SymbolInfo, SymbolTable, Reason, Decision, FusedGraph, Group, Member,
    *get_args(forms.Schedule), forms.Tile, forms.InnerTile,
    nodes.TensorType, nodes.Value, nodes.ComplexValue, nodes.Axis, nodes.Ref, nodes.ComplexRef, nodes.StridedRef,
    nodes.ScalarRef, nodes.Keyword, nodes.NamedCombiner, nodes.UserCombiner,
    nodes.Pointwise, nodes.Reduction, nodes.Scan, nodes.Scatter, nodes.Sort, nodes.View, nodes.Mutation, nodes.Extern,
    nodes.ContractionCall, nodes.Random, nodes.Collective, nodes.Region, nodes.Assert, nodes.HostScalar,
    nodes.ScalarInput, nodes.ObjectInput, nodes.LoopGraph,
    kernel.Parameter, kernel.ScratchArray, kernel.Store, kernel.Accumulate, kernel.ScanStore, kernel.Phase,
    kernel.KernelOrigin, kernel.Kernel, kernel.Subkernel, kernel.Invocation,
    program.Storage, program.Placement, program.Allocate, program.Free, program.Launch, program.CallStep,
    program.DefineStep, program.CheckStep, program.RegionStep, program.Plan,
)  # fmt: skip
"""Every class that may occur in serial form; no other class is instantiated."""

_OPERATIONS = tuple(c for c in CLASSES if issubclass(c, nodes.Operation))
"""Operations among the classes."""
_RECURSIVE: Mapping[str, Any] = MappingProxyType({"Argument": nodes.Argument})


class SchemaWriter(NodeWriter):
    """The node table of a document. With ``identity`` only fields that compare are written: no origins, no
    decisions.
    """

    def __init__(self, identity: bool = False) -> None:
        super().__init__()
        self.identity = identity


@dataclass(frozen=True, slots=True)
class Codec:
    """Encoder and decoder of one type."""

    encode: Callable[[Any, SchemaWriter], Json]
    """Function from a value to JSON."""
    decode: Callable[[Json, NodeReader], Any]
    """Function from JSON to a value."""
    check: Callable[[Any], None]
    """Function that raises :class:`Misfit` for a value of another type."""
    tag: str
    """Tag of the type where several types are possible; "" for plain JSON."""


def check_fields(data: Any) -> None:
    """Check the type of every field of a graph, plan or kernel, down to its terms and expressions.

    Raises :class:`Misfit` with the path of the field.
    """
    codec_of(type(data)).check(data)


def codec_of(hint: Any) -> Codec:
    """The codec of a type hint; raises ``TypeError`` for a class that is not in the list."""
    return _codec_of(hint)


@cache
def _codec_of(hint: Any) -> Codec:
    if isinstance(hint, (str, ForwardRef)):
        return _later(hint if isinstance(hint, str) else hint.__forward_arg__)
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _choice(args)
    if origin in (Union, UnionType):
        return _union(args)
    if origin is tuple:
        return _sequence(codec_of(args[0])) if args[-1] is Ellipsis else _record(args)
    if hint is nodes.Operation:
        return _union(_OPERATIONS)
    if hint in CLASSES:
        return _dataclass(hint)
    raise TypeError(f"{hint!r} has no serial form: list it in litz_ir.serial.schema.CLASSES")


def _plain(kind: type) -> Codec:
    return Codec(lambda value, writer: value, lambda data, reader: expect(data, kind), exactly(kind), "")


_PLAIN: Mapping[Any, Codec] = MappingProxyType(
    {
        **{kind: _plain(kind) for kind in (NoneType, bool, int, str)},
        float: Codec(
            lambda value, writer: float(value).hex(),
            lambda data, reader: float.fromhex(expect(data, str)),
            exactly(float),
            "f",
        ),
        complex: Codec(
            lambda value, writer: [value.real.hex(), value.imag.hex()],
            lambda data, reader: complex(*[float.fromhex(expect(each, str)) for each in expect(data, list)]),
            exactly(complex),
            "z",
        ),
        Term: Codec(
            lambda value, writer: writer.term(value), lambda data, reader: reader.term(data), check_term, "t"
        ),
        Expr: Codec(
            lambda value, writer: writer.expr(value), lambda data, reader: reader.expr(data), check_expr, "e"
        ),
        DType: Codec(
            lambda value, writer: value.name,
            lambda data, reader: dtype(expect(data, str)),
            exactly(DType),
            "d",
        ),
        Device: Codec(
            lambda value, writer: [value.kind, value.index],
            lambda data, reader: _device(*data),
            check_device,
            "v",
        ),
    }
)


def _device(kind: Json, index: Json) -> Device:
    return Device(expect(kind, str), expect(index, int))


def _later(name: str) -> Codec:
    """The codec of a recursive type, looked up by name when it is used."""
    return Codec(
        lambda value, writer: codec_of(_RECURSIVE[name]).encode(value, writer),
        lambda data, reader: codec_of(_RECURSIVE[name]).decode(data, reader),
        lambda value: codec_of(_RECURSIVE[name]).check(value),
        name,
    )


def _choice(words: Sequence[Any]) -> Codec:
    allowed = frozenset(words)

    def decode(data: Json, reader: NodeReader) -> Any:
        if type(data) is not str or data not in allowed:
            raise SerialError(f"expected one of {', '.join(map(str, words))}, found {data!r:.60}")
        return data

    def check(value: Any) -> None:
        if type(value) is not str or value not in allowed:
            raise Misfit(f"one of {', '.join(map(repr, words))}", value)

    return Codec(lambda value, writer: value, decode, check, "")


def _sequence(item: Codec) -> Codec:
    encode, decode = item.encode, item.decode

    def check(value: Any) -> None:
        exactly(tuple)(value)
        for position, each in enumerate(value):
            with_path(item.check, each, f"[{position}]")

    return Codec(
        lambda value, writer: [encode(each, writer) for each in value],
        lambda data, reader: tuple([decode(each, reader) for each in expect(data, list)]),
        check,
        "l",
    )


def _record(hints: Sequence[Any]) -> Codec:
    """The codec of a tuple of fixed length."""
    items = [codec_of(hint) for hint in hints]

    def check(value: Any) -> None:
        if type(value) is not tuple or len(value) != len(items):
            raise Misfit(f"a tuple of {len(items)}", value)
        for position, (item, each) in enumerate(zip(items, value, strict=True)):
            with_path(item.check, each, f"[{position}]")

    def decode(data: Json, reader: NodeReader) -> Any:
        return tuple(
            [item.decode(each, reader) for item, each in zip(items, expect(data, list), strict=True)]
        )

    return Codec(
        lambda value, writer: [item.encode(each, writer) for item, each in zip(items, value, strict=True)],
        decode,
        check,
        "l",
    )


def _dataclass(cls: type) -> Codec:
    names = [field.name for field in dataclasses.fields(cls)]
    keywords = any(field.kw_only for field in dataclasses.fields(cls))

    # The fields' codecs are looked up on first use, since a graph contains regions, which contain graphs.
    @cache
    def decoders() -> list[Callable[[Json, NodeReader], Any]]:
        hints = get_type_hints(cls)
        return [codec_of(hints[name]).decode for name in names]

    @cache
    def encoders(identity: bool) -> list[tuple[str, Callable[[Any, SchemaWriter], Json]]]:
        hints = get_type_hints(cls)
        fields = [field for field in dataclasses.fields(cls) if field.compare or not identity]
        return [(field.name, codec_of(hints[field.name]).encode) for field in fields]

    def encode(value: Any, writer: SchemaWriter) -> Json:
        return [
            encode_field(getattr(value, name), writer) for name, encode_field in encoders(writer.identity)
        ]

    def decode(data: Json, reader: NodeReader) -> Any:
        if type(data) is not list or len(data) != len(names):
            raise SerialError(f"a {cls.__name__} has {len(names)} fields, found {data!r:.60}")
        values = [decode_field(each, reader) for decode_field, each in zip(decoders(), data)]
        return cls(**dict(zip(names, values))) if keywords else cls(*values)

    @cache
    def checks() -> list[tuple[str, Callable[[Any], None]]]:
        hints = get_type_hints(cls)
        return [(name, codec_of(hints[name]).check) for name in names]

    def check(value: Any) -> None:
        exactly(cls)(value)
        for name, check_field in checks():
            with_path(check_field, getattr(value, name), f".{name}")

    return Codec(encode, decode, check, cls.__name__)


def _union(hints: Sequence[Any]) -> Codec:
    codecs = {hint: codec_of(hint) for hint in hints}
    by_tag = {codec.tag: codec for codec in codecs.values() if codec.tag}
    by_json = {hint: codec for hint, codec in codecs.items() if not codec.tag}
    by_type: dict[type, Codec] = {
        str if get_origin(hint) is Literal else get_origin(hint) or hint: codec
        for hint, codec in codecs.items()
    }
    names = " or ".join(getattr(kind, "__name__", str(kind)) for kind in by_type)

    @cache
    def codec_for(kind: Any) -> Codec:
        for base in kind.__mro__:
            if base in by_type:
                return by_type[base]
        raise TypeError(f"a {kind.__name__} where {names} is expected")

    def encode(value: Any, writer: SchemaWriter) -> Json:
        kind: Any = type(value)
        codec = codec_for(kind)
        data = codec.encode(value, writer)
        return [codec.tag, data] if codec.tag else data

    def decode(data: Json, reader: NodeReader) -> Any:
        if type(data) is list:
            tag, inner = data
            return by_tag[tag].decode(inner, reader)
        return by_json[type(data)].decode(data, reader)

    def check(value: Any) -> None:
        for base in type(value).__mro__:
            if base in by_type and (by_type[base].tag or type(value) is base):
                by_type[base].check(value)
                return
        raise Misfit(names, value)

    return Codec(encode, decode, check, "u")
