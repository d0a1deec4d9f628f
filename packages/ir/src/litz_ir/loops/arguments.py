"""Arguments of calls, and the values and sizes that they refer to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from litz_ir.device import Device
from litz_ir.dtypes import DType
from litz_ir.loops.layout import Layout
from litz_ir.symbols.term import Size, Term


@dataclass(frozen=True, slots=True)
class Ref:
    """A buffer as an argument of a call."""

    name: str
    """Name of the buffer."""


@dataclass(frozen=True, slots=True)
class ComplexRef(Ref):
    """A buffer of (real, imaginary) pairs, passed or returned as a complex tensor over the same memory.

    The last dimension of the buffer has size two.
    """


@dataclass(frozen=True, slots=True)
class StridedRef:
    """A strided view of a buffer's memory as an argument, so that the call can write to it."""

    name: str
    """Name of the buffer."""
    shape: tuple[Size, ...]
    """Shape of the view."""
    layout: Layout
    """Strides and offset in elements, counted from the buffer's first one under eager's strides of the buffer."""


@dataclass(frozen=True, slots=True)
class ScalarRef:
    """A float or bool symbol as an argument of a call; integer symbols are passed as terms."""

    name: str
    """Name of the symbol."""


@dataclass(frozen=True, slots=True)
class Keyword:
    """An enumeration value of the caller, such as ``Keyword("memory_format", "channels_last")``."""

    kind: str
    """Name of the enumeration."""
    name: str
    """Name of the value."""


Argument = (
    Ref | ComplexRef | StridedRef | ScalarRef | Keyword | DType | Device | Size | float | bool | complex | str | None
    | tuple["Argument", ...]
)  # fmt: skip
"""An argument of a call: a reference, an enumeration value, a literal, a size, or a tuple of arguments."""
Attributes = tuple[tuple[str, Argument], ...]
"""Keyword arguments of a call: names and values."""


def references(argument: Argument) -> Iterator[str]:
    """Yield the names of the buffers that an argument refers to."""
    if isinstance(argument, Ref | StridedRef):
        yield argument.name
    elif isinstance(argument, tuple):
        for item in argument:
            yield from references(item)


def sizes_in(argument: Argument) -> Iterator[Size]:
    """Yield the sizes and index terms in an argument."""
    if isinstance(argument, Term):
        yield argument
    elif isinstance(argument, StridedRef):
        yield from (*argument.shape, *argument.layout.strides, argument.layout.offset)
    elif isinstance(argument, tuple):
        for item in argument:
            yield from sizes_in(item)


def complex_references(argument: Argument) -> Iterator[str]:
    """Yield the names of the buffers that an argument passes as complex tensors."""
    if isinstance(argument, ComplexRef):
        yield argument.name
    elif isinstance(argument, tuple):
        for item in argument:
            yield from complex_references(item)
