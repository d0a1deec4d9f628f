"""Checks of the graphs that a region runs."""

from __future__ import annotations

from collections.abc import Sequence

from litz_ir.builder.checks import shown
from litz_ir.builder.views import described
from litz_ir.dtypes import b1
from litz_ir.errors import GraphError
from litz_ir.loops.nodes import LoopGraph, Ref, TensorType, Value


def checked_subgraph(graph: object, types: Sequence[TensorType], role: str) -> LoopGraph:
    """Return a graph whose inputs fit tensors of ``types``; raises ``GraphError`` for another one, or no graph."""
    if not isinstance(graph, LoopGraph):
        raise GraphError(
            f"{role} is {shown(graph)}, but a graph belongs there",
            hint="give what build of a builder returned",
        )
    if len(graph.inputs) != len(types):
        raise GraphError(
            f"{role} {graph.name} has {len(graph.inputs)} inputs, but gets {len(types)} tensors",
            hint="add an input to it for each tensor, in order",
        )
    for each, given in zip(graph.inputs, types, strict=True):
        if not isinstance(each, Value) or not fits(each.type, given):
            wanted = type_text(each.type) if isinstance(each, Value) else type(each).__name__
            raise GraphError(
                f"the input {each.name} of {role} {graph.name} is {wanted}, but gets {type_text(given)}",
                hint="tensors have the dtypes and shapes of the inputs, in order",
            )
    return graph


def output_types(graph: LoopGraph, role: str) -> tuple[TensorType, ...]:
    """Return the types of a graph's outputs; raises ``GraphError`` for an output that is no tensor."""
    values = graph.values()
    for each in graph.outputs:
        if not isinstance(each, Ref):
            raise GraphError(f"{role} {graph.name} returns {shown(each)}, but tensors belong there")
    return tuple(values[each.name].type for each in graph.outputs if isinstance(each, Ref))


def check_results(graph: LoopGraph, expected: Sequence[TensorType], role: str, like: str) -> None:
    """Raise ``GraphError`` unless the outputs of a graph fit ``expected``, which ``like`` describes."""
    found = output_types(graph, role)
    if len(found) == len(expected) and all(map(fits, found, expected)):
        return
    results, wanted = (", ".join(map(type_text, each)) or "nothing" for each in (found, expected))
    raise GraphError(
        f"{role} {graph.name} returns {results}, but {like} {wanted}",
        hint="give both the same number of tensors, of the same dtypes and shapes",
    )


def check_truth(graph: LoopGraph, role: str) -> None:
    """Raise ``GraphError`` unless a graph returns one 0-d ``b1`` tensor."""
    found = output_types(graph, role)
    if len(found) != 1 or found[0].dtype != b1 or found[0].shape:
        raise GraphError(
            f"{role} {graph.name} returns {', '.join(map(type_text, found)) or 'nothing'}, but one 0-d b1 tensor "
            f"belongs there",
            hint="compare 0-d tensors, or reduce by 'any' or 'all'",
        )


def fits(a: TensorType, b: TensorType) -> bool:
    """Return False if two types differ in dtype, rank or a size that is an int in both."""
    return (
        a.dtype == b.dtype
        and len(a.shape) == len(b.shape)
        and all(
            x == y or not (isinstance(x, int) and isinstance(y, int))
            for x, y in zip(a.shape, b.shape, strict=True)
        )
    )


def type_text(type_: TensorType) -> str:
    """Return the dtype and shape of a type as text."""
    return f"{type_.dtype}{described(type_.shape)}"
