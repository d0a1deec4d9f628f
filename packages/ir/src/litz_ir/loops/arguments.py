"""What calls are passed, and what an argument reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from litz_ir.device import Device
from litz_ir.dtypes import DType
from litz_ir.loops.layout import Layout
from litz_ir.symbols.term import Size, Term


@dataclass(frozen=True, slots=True)
class Ref:
    """A value passed to a call."""

    name: str


@dataclass(frozen=True, slots=True)
class ComplexRef(Ref):
    """Pairs (real, imaginary) on a last dimension of two, passed to a call or returned as a complex tensor over the
    same memory."""


@dataclass(frozen=True, slots=True)
class StridedRef:
    """Part of a value's memory passed to a call as a tensor of its own, so that the call can overwrite it there.

    ``layout`` counts elements from the value's first one; it goes by eager's strides of the value.
    """

    name: str
    shape: tuple[Size, ...]
    layout: Layout


@dataclass(frozen=True, slots=True)
class ScalarRef:
    """A float or bool symbol passed to a call; integer symbols are passed as terms."""

    name: str


@dataclass(frozen=True, slots=True)
class Keyword:
    """A name that belongs to the caller's vocabulary: ``Keyword("memory_format", "channels_last")``."""

    kind: str
    name: str


Argument = (
    Ref | ComplexRef | StridedRef | ScalarRef | Keyword | DType | Device | Size | float | bool | complex | str | None
    | tuple["Argument", ...]
)  # fmt: skip
Attributes = tuple[tuple[str, Argument], ...]


def references(argument: Argument) -> Iterator[str]:
    """The values that an argument reads."""
    if isinstance(argument, Ref | StridedRef):
        yield argument.name
    elif isinstance(argument, tuple):
        for item in argument:
            yield from references(item)


def sizes_in(argument: Argument) -> Iterator[Size]:
    """The sizes and index terms in an argument."""
    if isinstance(argument, Term):
        yield argument
    elif isinstance(argument, StridedRef):
        yield from (*argument.shape, *argument.layout.strides, argument.layout.offset)
    elif isinstance(argument, tuple):
        for item in argument:
            yield from sizes_in(item)


def complex_references(argument: Argument) -> Iterator[str]:
    """The values that an argument passes as complex tensors."""
    if isinstance(argument, ComplexRef):
        yield argument.name
    elif isinstance(argument, tuple):
        for item in argument:
            yield from complex_references(item)
