"""Line map: the lines of generated sources that each kernel occupies, and the user's lines that it comes from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from litz_ir.origin import Origin, describe_locations
from litz_ir.target import SourceUnit


@dataclass(frozen=True, slots=True)
class SourceLines:
    """The lines of a kernel in the sources of its graph."""

    unit: int
    """Position of the source among those of the graph, from 0."""

    first: int
    """First line, from 1."""

    last: int
    """Last line."""


def source_lines(units: Sequence[SourceUnit]) -> Mapping[str, SourceLines]:
    """Return the lines of each kernel by name.

    Of a target that does not say where its kernels are, only kernels with a source of their own are included.
    """
    found: dict[str, SourceLines] = {}
    for position, unit in enumerate(units):
        lines = unit.lines
        if not lines and len(unit.kernels) == 1:
            lines = ((1, max(1, len(unit.text.splitlines()))),)
        for kernel, (first, last) in zip(unit.kernels, lines):
            found[kernel] = SourceLines(position, first, last)
    return found


def user_lines(origins: Iterable[Origin]) -> tuple[str, ...]:
    """Return a text for each of the user's lines, with its nodes: ``mul, add at model.py:12: x = x * 2 + 1``."""
    return describe_locations(replace(each, operation="") for each in origins)


def locations(origins: Iterable[Origin]) -> tuple[str, ...]:
    """Return the user's lines as ``file:line``, each once, in order."""
    return tuple(dict.fromkeys(f"{each.file}:{each.line}" for each in origins if each.file))
