"""Libraries: routines of ``litz/library`` that are compiled once and that units link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from litz_codegen_cpp.emit.source.entry_points import LIBRARY
from litz_ir.contraction import convolution_arguments
from litz_ir.dtypes import f32
from litz_ir.loops import ContractionCall, LoopGraph, Operation
from litz_ir.target import SourceUnit


@dataclass(frozen=True, slots=True)
class _Routines:
    """The routines of one library."""

    calls: tuple[str, ...]
    """Beginnings of calls of the routines in the text of units."""
    macro: str
    """The macro of ``library/tiles.h`` that declares or instantiates them."""
    header: str
    """The header that has all of them."""


_LIBRARIES: Mapping[str, _Routines] = {
    "panels": _Routines(("sum_panels(", "sum_copies("), "LITZ_PANELS", "copied_sums"),
    "channels": _Routines(("sum_channels(",), "LITZ_CHANNELS", "tiled_sums"),
}
"""The libraries by name. What is often linked alone is a library of its own."""


def linked_libraries(text: str, flags: tuple[str, ...]) -> tuple[SourceUnit, ...]:
    """Return the libraries with the routines that a unit calls; ``flags`` identify their build."""
    return tuple(
        _library(name, each, flags)
        for name, each in _LIBRARIES.items()
        if any(call in text for call in each.calls)
    )


def expected_libraries(graph: LoopGraph, flags: tuple[str, ...]) -> tuple[SourceUnit, ...]:
    """Return the libraries that the kernels of a graph probably link: for convolutions whose weights are frozen.

    Most depthwise ones compile a routine for the length of their rows instead.
    """
    expected = any(_is_tiled(each, graph) for each in graph.operations)
    return (_library("panels", _LIBRARIES["panels"], flags),) if expected else ()


def _is_tiled(operation: Operation, graph: LoopGraph) -> bool:
    """Return whether an operation is a convolution of whole channels in f32 on the CPU with a frozen weight."""
    if not isinstance(operation, ContractionCall):
        return False
    type_ = operation.results[0].type
    if type_.dtype != f32 or type_.device.kind != "cpu":
        return False
    given = convolution_arguments(operation.target, operation.arguments, operation.attributes)
    return (
        given is not None
        and given.grad_output is None
        and given.groups == 1
        and given.weight.name in graph.frozen
    )


def _library(name: str, routines: _Routines, flags: tuple[str, ...]) -> SourceUnit:
    """Return the source of a library."""
    text = f"#define {routines.macro} template\n#include <litz/library/{routines.header}.h>\n"
    return SourceUnit(name, LIBRARY, text, (), flags)
