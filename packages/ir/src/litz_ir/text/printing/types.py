"""Printer of the parts that all levels have: tensor types, symbols, inputs, arguments of calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from litz_ir.device import CPU, Device
from litz_ir.dtypes import DType
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
    Ref,
    ScalarInput,
    ScalarRef,
    StridedRef,
    TensorType,
    Value,
)
from litz_ir.symbols.table import SymbolInfo, SymbolTable
from litz_ir.symbols.term import Size
from litz_ir.text.printing.bodies import print_term
from litz_ir.text.spelling import float_text, name_text, scalar_text, string_text, value_text

INDENT = "  "
"""Indentation of one level."""
WIDTH = 110
"""Most columns of a block that is printed on one line."""


def indented(lines: Iterable[str]) -> list[str]:
    """The lines, indented by one level."""
    return [INDENT + line for line in lines]


def device_text(device: Device) -> str:
    """The text of a device: ``cpu`` or ``cuda:1``."""
    return name_text(device.kind) + (f":{device.index}" if device.index else "")


def default_device(types: Iterable[TensorType]) -> Device:
    """The most frequent device of the types, which is omitted from each; of several, the first."""
    counts = Counter(type_.device for type_ in types)
    return counts.most_common(1)[0][0] if counts else CPU


def _layout_text(layout: Layout, shape: tuple[Size, ...]) -> str:
    """The text of a layout, each part led by a space: strides unless row-major, offset, ``fixed``."""
    text = ""
    if layout.strides != contiguous_strides(shape):
        text += f" strides({', '.join(map(print_term, layout.strides))})"
    if layout.offset != 0:
        text += f" offset {print_term(layout.offset)}"
    return text + (" fixed" if layout.fixed else "")


def tail_text(type_: TensorType, device: Device) -> str:
    """The text after a type's shape: the layout, and the device unless it is the default ``device``."""
    other = "" if type_.device == device else f" on {device_text(type_.device)}"
    return _layout_text(type_.layout, type_.shape) + other


def type_text(type_: TensorType, device: Device) -> str:
    """The text of a tensor type: ``f32[4, 5] strides(1, 4) fixed on cuda``."""
    shape = ", ".join(map(print_term, type_.shape))
    return f"{type_.dtype}[{shape}]{tail_text(type_, device)}"


def value_type_text(value: Value, device: Device) -> str:
    """A value's type, led by ``complex`` for a complex tensor from outside."""
    return ("complex " if isinstance(value, ComplexValue) else "") + type_text(value.type, device)


def value_name(value: Value) -> str:
    """The text of a result's name: ``%x1 replaces %x``."""
    return value_text(value.name) + (
        f" replaces {value_text(value.replaces)}" if value.replaces is not None else ""
    )


def declaration(value: Value, device: Device) -> str:
    """The text of a buffer's declaration: ``%x: f32[4, 5]``, or ``%x: complex f32[4, 5, 2]``."""
    return f"{value_name(value)}: {value_type_text(value, device)}"


def _axis_text(axis: Axis) -> str:
    """The text of an axis: ``i0: 4096``."""
    return f"{name_text(axis.name)}: {print_term(axis.size)}"


def axes_text(axes: Iterable[Axis], inner: Sequence[Axis] = ()) -> str:
    """The text of outer and inner axes: ``[i0: 4096, i1: 4 | r0: 1024]``."""
    text = ", ".join(map(_axis_text, axes))
    if inner:
        text = f"{text} | {', '.join(map(_axis_text, inner))}".strip()
    return f"[{text}]"


def input_text(item: Input, device: Device) -> str:
    """The text of an input: ``%x: f32[4]``, ``$n: int as s0``, ``$m: int = s0*2`` or ``object %g: generator``."""
    match item:
        case Value():
            return declaration(item, device)
        case ScalarInput():
            symbol = f" as {name_text(item.symbol)}" if item.symbol is not None else ""
            term = f" = {print_term(item.term)}" if item.term is not None else ""
            return f"{scalar_text(item.name)}: {item.kind}{symbol}{term}"
        case ObjectInput():
            return f"object {value_text(item.name)}: {name_text(item.kind)}"


def argument_text(argument: Argument) -> str:
    """The text of an argument of a call.

    ``%x``, ``complex(%x)``, ``%x strided[2] offset 4``, ``$s``, ``kind::name``, ``f32``, ``device(cpu)``, a term, or a
    literal such as ``complex(0.0, 1.0)``.
    """
    match argument:
        case None:
            return "none"
        case bool():
            return "true" if argument else "false"
        case float():
            return float_text(argument)
        case complex():
            return f"complex({float_text(argument.real)}, {float_text(argument.imag)})"
        case str():
            return string_text(argument)
        case tuple():
            return f"[{', '.join(map(argument_text, argument))}]"
        case ComplexRef():
            return f"complex({value_text(argument.name)})"
        case Ref():
            return value_text(argument.name)
        case StridedRef():
            shape = ", ".join(map(print_term, argument.shape))
            return (
                f"{value_text(argument.name)} strided[{shape}]{_layout_text(argument.layout, argument.shape)}"
            )
        case ScalarRef():
            return scalar_text(argument.name)
        case Keyword():
            return f"{name_text(argument.kind)}::{name_text(argument.name)}"
        case DType():
            return argument.name
        case Device():
            return f"device({device_text(argument)})"
    return print_term(argument)


def arguments_text(arguments: Iterable[Argument], attributes: Attributes = ()) -> str:
    """The text of arguments: ``(%x, 3, dim=0)``."""
    named = [f"{name_text(name)}={argument_text(value)}" for name, value in attributes]
    return f"({', '.join([*map(argument_text, arguments), *named])})"


def info_text(info: SymbolInfo) -> str:
    """The text of a symbol, without unknown fields: ``s0: int from 2 to 4096 multiple 8 hint 1024 source "…"``."""
    text = f"{name_text(info.name)}: {info.kind}"
    if info.low is not None:
        text += f" from {info.low}"
    if info.high is not None:
        text += f" to {info.high}"
    if info.divisor != 1:
        text += f" multiple {info.divisor}"
    if info.hint is not None:
        text += f" hint {argument_text(info.hint)}"
    return text + (f" source {string_text(info.source)}" if info.source else "")


def symbols_lines(table: SymbolTable) -> list[str]:
    """The lines of a symbol table: ``symbols { … }``; no line for an empty table."""
    facts = [info_text(info) for info in table.infos]
    facts += [f"equal {print_term(left)} = {print_term(right)}" for left, right in table.equalities]
    return ["symbols {", *indented(facts), "}"] if facts else []


def error_text(error: AssertedError) -> str:
    """The exception class that an assertion raises, and a space; empty for ``RuntimeError``."""
    return "" if error == "RuntimeError" else f"{error} "


def braced(lets: list[str], bodies: list[str], *, width: int) -> list[str]:
    """A block of bodies: one line if it fits into ``width`` columns, else a line for each let and body."""
    if not lets:
        short = f"{{ {', '.join(bodies)} }}" if bodies else "{ }"
        if len(short) <= width:
            return [short]
    separated = [body + "," for body in bodies[:-1]] + bodies[-1:]
    return ["{", *indented([*lets, *separated]), "}"]
