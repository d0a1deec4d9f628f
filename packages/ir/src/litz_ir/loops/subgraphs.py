"""Extraction of operations of a graph as a graph of their own."""

from __future__ import annotations

from collections.abc import Callable

from litz_ir.loops.arguments import Ref
from litz_ir.loops.graph import LoopGraph, Region, ScalarInput
from litz_ir.loops.operations import Assert, HostScalar, Mutation, Operation
from litz_ir.loops.values import Value


def extract_subgraph(graph: LoopGraph, chosen: Callable[[Operation], bool], name: str) -> LoopGraph | None:
    """The chosen operations as a graph called ``name``, or ``None`` if they cannot run on their own.

    Its inputs are the symbols of ``graph`` and the buffers that the operations read of others; its outputs are the
    values that others read or ``graph`` returns. Operations that mutate memory, have a token, are regions, or run on
    the host cannot be extracted.
    """
    inside = [operation for operation in graph.operations if chosen(operation)]
    if not inside or not all(map(_stands_alone, inside)):
        return None
    values = graph.values()
    defined = {value.name for operation in inside for value in operation.results}
    given = dict.fromkeys(name for operation in inside for name in operation.reads if name not in defined)
    if not all(name in values for name in given):
        return None
    needed = {name for operation in graph.operations if not chosen(operation) for name in operation.reads}
    needed |= {output.name for output in graph.outputs if isinstance(output, Ref)}
    sizes = [ScalarInput(f"{info.name}.given", info.kind, symbol=info.name) for info in graph.symbols]
    tensors = [Value(each, values[each].type) for each in given]
    outputs = tuple(
        Ref(value.name) for operation in inside for value in operation.results if value.name in needed
    )
    return LoopGraph(name, graph.symbols, (*sizes, *tensors), (), tuple(inside), outputs)


def _stands_alone(operation: Operation) -> bool:
    if isinstance(operation, Mutation | Region | Assert | HostScalar) or operation.tokens:
        return False
    return all(type(value) is Value and value.replaces is None for value in operation.results)
