"""Parser of the parts that all levels have: tensor types, symbols, inputs, arguments of calls."""

from __future__ import annotations

from typing import Literal, TypeVar, cast, get_args

from litz_ir.device import CPU, Device
from litz_ir.dtypes import DType
from litz_ir.errors import LitzError
from litz_ir.loops.layout import Layout, contiguous_strides
from litz_ir.loops.nodes import (
    Argument,
    AssertedError,
    Attributes,
    Axis,
    ComplexRef,
    ComplexValue,
    Input,
    Keyword,
    ObjectInput,
    Output,
    Ref,
    ScalarInput,
    ScalarRef,
    StridedRef,
    TensorType,
    Value,
)
from litz_ir.symbols.table import SymbolInfo, SymbolKind, SymbolTable
from litz_ir.symbols.term import Size
from litz_ir.text.lexer import Stream, separated
from litz_ir.text.parsing.bodies import BodyParser
from litz_ir.text.scope import DTypeScope

T = TypeVar("T")
_KINDS = ("int", "float", "bool")
"""Kinds of symbols and scalar inputs."""


def term(stream: Stream) -> Size:
    """An index term outside a body, whose loads state their dtypes."""
    return BodyParser(stream, DTypeScope()).term()


def tail(stream: Stream, shape: tuple[Size, ...], device: Device) -> tuple[Layout, Device]:
    """The layout and device after a type's shape."""
    strides = contiguous_strides(shape)
    if stream.accept("strides"):
        strides = separated(stream, lambda: term(stream))
    offset = term(stream) if stream.accept("offset") else 0
    fixed = stream.accept("fixed")
    return Layout(strides, offset, fixed), stream.device() if stream.accept("on") else device


def tensor_type(stream: Stream, device: Device) -> TensorType:
    """A tensor type: ``f32[4, 5] strides(1, 4) fixed on cuda``."""
    dtype = stream.dtype()
    shape = separated(stream, lambda: term(stream), start="[", stop="]")
    layout, type_device = tail(stream, shape, device)
    return TensorType(dtype, shape, layout, type_device)


def result_name(stream: Stream) -> tuple[str, str | None]:
    """A result's name: ``%x1 replaces %x``."""
    name = stream.value()
    return name, stream.value() if stream.accept("replaces") else None


def declaration(stream: Stream, device: Device) -> Value:
    """A buffer's declaration: ``%x: f32[4, 5]``, or ``%x: complex f32[4, 5, 2]``."""
    name, replaces = result_name(stream)
    stream.expect(":")
    make = ComplexValue if stream.accept("complex") else Value
    return make(name, tensor_type(stream, device), replaces)


def _axis(stream: Stream) -> Axis:
    """An axis: ``i0: 4096``."""
    name = stream.name("an axis")
    stream.expect(":")
    return Axis(name, term(stream))


def axes(stream: Stream) -> tuple[tuple[Axis, ...], tuple[Axis, ...] | None]:
    """Outer and inner axes: ``[i0: 4096, i1: 4 | r0: 1024]``; the inner ones are None without a bar."""
    stream.expect("[")
    outer = _axis_list(stream)
    inner = _axis_list(stream) if stream.accept("|") else None
    stream.expect("]")
    return outer, inner


def _axis_list(stream: Stream) -> tuple[Axis, ...]:
    found: list[Axis] = []
    while not (stream.at("]") or stream.at("|")):
        found.append(_axis(stream))
        if not stream.accept(","):
            break
    return tuple(found)


def one_part(stream: Stream) -> tuple[Axis, ...]:
    """Axes without a bar."""
    outer, inner = axes(stream)
    if inner is not None:
        stream.fail("no inner axes (after '|') are allowed here")
    return outer


def parse_input(stream: Stream, device: Device) -> Input:
    """An input of a graph or plan."""
    if stream.accept("object"):
        name = stream.value()
        stream.expect(":")
        return ObjectInput(name, stream.name("the kind of object"))
    if stream.token.kind != "scalar":
        return declaration(stream, device)
    name = stream.scalar()
    stream.expect(":")
    kind = cast(Literal["int", "float", "bool"], stream.word("a kind", _KINDS))
    symbol = stream.name("a symbol") if stream.accept("as") else None
    return ScalarInput(name, kind, symbol, term(stream) if stream.accept("=") else None)


def argument(stream: Stream) -> Argument:
    """An argument of a call."""
    token = stream.token
    match token.kind:
        case "value":
            return _value_or_strided(stream)
        case "scalar":
            return ScalarRef(stream.scalar())
        case "string":
            return stream.string()
        case "name" | "quoted" if stream.next_is("::"):
            kind = stream.name()
            stream.expect("::")
            return Keyword(kind, stream.name())
        case "name" if token.text in ("none", "true", "false"):
            stream.advance()
            return None if token.text == "none" else token.text == "true"
        case "name" if token.text == "complex" and stream.next_is("("):
            return _complex(stream)
        case "name" if token.text == "device" and stream.next_is("("):
            stream.advance()
            stream.expect("(")
            device = stream.device()
            stream.expect(")")
            return device
    if stream.at_dtype():
        return stream.dtype()
    if stream.at("["):
        return separated(stream, lambda: argument(stream), start="[", stop="]")
    return _number(stream)


def _value_or_strided(stream: Stream) -> Ref | StridedRef:
    """A reference to a buffer: ``%x`` or ``%x strided[2, 3] strides(1, 4) offset 8``."""
    name = stream.value()
    if not stream.accept("strided"):
        return Ref(name)
    shape = separated(stream, lambda: term(stream), start="[", stop="]")
    return StridedRef(name, shape, tail(stream, shape, CPU)[0])


def _complex(stream: Stream) -> ComplexRef | complex:
    """A complex argument: ``complex(%x)`` or ``complex(0.0, 1.0)``."""
    stream.expect("complex")
    stream.expect("(")
    found: ComplexRef | complex
    if stream.token.kind == "value":
        found = ComplexRef(stream.value())
    else:
        token = stream.token
        real, _, imaginary = _number(stream), stream.expect(","), _number(stream)
        if not isinstance(real, float) or not isinstance(imaginary, float):
            stream.fail("the parts of a complex number are floats", token)
        found = complex(real, imaginary)
    stream.expect(")")
    return found


def _number(stream: Stream) -> Size | float:
    """A float literal or an index term."""
    following = stream.tokens[min(stream.position + 1, len(stream.tokens) - 1)]
    token = following if stream.at("-") else stream.token
    if token.kind == "float" or (token.kind == "name" and token.text in ("inf", "nan")):
        sign = -1.0 if stream.accept("-") else 1.0
        return sign * float(stream.advance().text)
    return term(stream)


def output(stream: Stream) -> Output:
    """An output of a graph or plan."""
    token = stream.token
    found = argument(stream)
    if isinstance(found, (str, complex, tuple, DType, Device, Keyword, StridedRef)):
        stream.fail("an output is a value, a scalar, a term, a literal or none", token)
    return found


def arguments(stream: Stream) -> tuple[tuple[Argument, ...], Attributes]:
    """Arguments of a call: ``(%x, 3, dim=0)``."""
    positional: list[Argument] = []
    named: list[tuple[str, Argument]] = []

    def one() -> None:
        if stream.token.kind in ("name", "quoted") and stream.next_is("="):
            name = stream.name()
            stream.expect("=")
            named.append((name, argument(stream)))
        elif named:
            stream.fail("a positional argument after a named one")
        else:
            positional.append(argument(stream))

    separated(stream, one)
    return tuple(positional), tuple(named)


def asserted_error(stream: Stream) -> AssertedError:
    """The exception class that an assertion raises."""
    for error in get_args(AssertedError):
        if stream.accept(error):
            return cast(AssertedError, error)
    return "RuntimeError"


def info(stream: Stream) -> SymbolInfo:
    """A symbol: ``s0: int from 2 to 4096 multiple 8 hint 1024 source "…"``."""
    token = stream.token
    name = stream.name("a symbol")
    stream.expect(":")
    kind = cast(SymbolKind, stream.word("a kind", _KINDS))
    low = stream.integer() if stream.accept("from") else None
    high = stream.integer() if stream.accept("to") else None
    divisor = stream.integer() if stream.accept("multiple") else 1
    hint = _hint(stream) if stream.accept("hint") else None
    source = stream.string() if stream.accept("source") else ""
    try:
        return SymbolInfo(name, kind, low, high, divisor, hint, source)
    except LitzError as error:
        stream.fail(error.message, token)


def _hint(stream: Stream) -> int | float | bool:
    token = stream.token
    found = argument(stream)
    if not isinstance(found, (int, float)):
        stream.fail("a hint is a number", token)
    return found


def symbols(stream: Stream) -> SymbolTable:
    """The symbol table ``symbols { … }``; empty if it is missing."""
    start = stream.token
    if not stream.accept("symbols"):
        return SymbolTable()
    stream.expect("{")
    infos: list[SymbolInfo] = []
    equalities: list[tuple[Size, Size]] = []
    while not stream.accept("}"):
        if stream.at("equal") and not stream.next_is(":"):
            stream.advance()
            left = term(stream)
            stream.expect("=")
            equalities.append((left, term(stream)))
        else:
            infos.append(info(stream))
    try:
        return SymbolTable(tuple(infos), tuple(equalities))
    except LitzError as error:
        stream.fail(error.message, start)
