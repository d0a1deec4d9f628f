"""Axes, layouts and origins of the operations that the builder adds."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from litz_ir.loops.layout import Layout, contiguous
from litz_ir.loops.nodes import Axis, Operation
from litz_ir.origin import Origin
from litz_ir.symbols.polynomials import coefficient
from litz_ir.symbols.ranges import is_natural
from litz_ir.symbols.substitution import substitute
from litz_ir.symbols.term import Range, Size, free_symbols, symbol

_HERE = str(Path(__file__).parent)


def axes_of(shape: Sequence[Size]) -> tuple[Axis, ...]:
    """Return axes of a shape, called i0, i1 and so on."""
    return tuple(Axis(f"i{k}", size) for k, size in enumerate(shape))


def terms_of(axes: Sequence[Axis]) -> tuple[Size, ...]:
    """Return the loop variables of axes as index terms."""
    return tuple(symbol(axis.name) for axis in axes)


def promised(operation: Operation, returned: set[str]) -> Operation:
    """Return an operation with the layouts of results that the graph returns promised to the caller."""
    results = tuple(
        replace(value, type=replace(value.type, layout=replace(value.type.layout, fixed=True)))
        if value.name in returned and value.replaces is None
        else value
        for value in operation.results
    )
    return operation if results == operation.results else replace(operation, results=results)


def alias_layout(element: Size, axes: Sequence[Axis], ranges: Mapping[str, Range]) -> Layout | None:
    """Return the layout of a view whose points lie at an offset of elements; ``None`` if no strides express it, or one
    may be negative."""
    names = {axis.name for axis in axes}
    row_major = contiguous([axis.size for axis in axes]).strides
    strides: list[Size] = []
    for axis, default in zip(axes, row_major, strict=True):
        if axis.size == 1:
            strides.append(default)  # it addresses no element
            continue
        slope = coefficient(element, axis.name)
        if slope is None or free_symbols(slope) & names or not is_natural(slope, ranges):
            return None
        strides.append(slope)
    return Layout(tuple(strides), substitute(element, dict.fromkeys(names, 0)))


def caller(name: str, kind: type[Operation]) -> Origin:
    """Return the line outside the builder that adds an operation, as its origin."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    file, line = frame.f_code.co_filename, frame.f_lineno
    return Origin(name, kind.__name__.lower(), "", file, line, linecache.getline(file, line).strip())
