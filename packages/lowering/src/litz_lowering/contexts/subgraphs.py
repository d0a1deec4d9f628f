"""Subgraphs of control flow, each lowered once for its output requirements and closed over outer symbols."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from weakref import WeakMethod

from litz_ir.loops import Call, HostScalar, LoopGraph, Region, ScalarInput, Value
from litz_ir.symbols import Symbol, SymbolInfo, symbol
from litz_lowering.contexts.values import ResultType, Subgraph


@dataclass(frozen=True, slots=True)
class SubgraphRequirements:
    """Types and aliasing that the outputs of a subgraph must have, and layouts of its inputs.

    Outputs have memory of their own, unless ``views`` allows views of inputs. Numbers with a required type become
    one-element tensors.
    """

    carried: int = 0
    """Number of leading outputs that have the types of the first inputs."""
    types: tuple[ResultType, ...] = ()
    """Required types of further outputs by position; None where any type will do."""
    views: bool = False
    """Allow outputs that are views of inputs."""
    row_major: tuple[int, ...] = ()
    """Inputs, by position, that are in row-major order whatever strides they were traced with."""


Lower = Callable[[Subgraph, SubgraphRequirements], LoopGraph]


class Subgraphs:
    """Subgraphs of one graph, lowered once for each set of output requirements.

    ``lower`` is a method of the object that has these subgraphs, which strong references would keep until a collection.
    """

    def __init__(self, lower: WeakMethod[Lower]) -> None:
        self._lower = lower
        self._lowered: dict[tuple[int, SubgraphRequirements], LoopGraph] = {}
        self._tailored: dict[tuple[int, tuple[int, ...], tuple[str, ...]], LoopGraph] = {}

    def lower(self, subgraph: Subgraph, requirements: SubgraphRequirements) -> LoopGraph:
        """Loop graph of a subgraph."""
        key = (id(subgraph.module), requirements)
        if key not in self._lowered:
            lower = self._lower()
            assert lower is not None, "the object whose method it is reads the subgraphs"
            self._lowered[key] = lower(subgraph, requirements)
        return self._lowered[key]

    def tailored(
        self, graph: LoopGraph, wanted: tuple[int, ...] | None, symbols: Iterable[SymbolInfo]
    ) -> LoopGraph:
        """Restrict a lowered graph to the outputs at ``kept`` (None: all), and add ``symbols`` as inputs."""
        infos = tuple(symbols)
        outputs = tuple(range(len(graph.outputs))) if wanted is None else wanted
        key = (id(graph), outputs, tuple(info.name for info in infos))
        if key not in self._tailored:
            bound = set(_bound_symbols(graph))
            inputs = tuple(_symbol_input(info, bound) for info in infos)
            self._tailored[key] = replace(
                graph,
                symbols=graph.symbols.add(*(info for info in infos if info.name not in graph.symbols)),
                inputs=(*graph.inputs, *inputs),
                outputs=tuple(graph.outputs[position] for position in outputs),
            )
        return self._tailored[key]


def _symbol_input(info: SymbolInfo, bound: set[str]) -> ScalarInput:
    if info.name in bound:
        return ScalarInput(f"{info.name}_around", "int", term=symbol(info.name))
    return ScalarInput(info.name, info.kind, symbol=info.name)


def missing_symbols(graph: LoopGraph) -> tuple[SymbolInfo, ...]:
    """Symbols that a graph uses but does not bind, and that it captures from around it."""
    bound = set(_bound_symbols(graph))
    return tuple(info for info in graph.symbols if info.name not in bound)


def _bound_symbols(graph: LoopGraph) -> Iterator[str]:
    """Symbols that a graph's inputs, calls and host scalars bind."""
    for each in graph.inputs:
        if isinstance(each, ScalarInput):
            yield each.symbol or each.name
        elif isinstance(each, Value):
            yield from _sizes_of(each)
    for operation in graph.operations:
        if isinstance(operation, HostScalar):
            yield operation.symbol
        elif isinstance(operation, Call | Region):
            for value in operation.results:
                yield from _sizes_of(value)


def _sizes_of(value: Value) -> Iterator[str]:
    terms = (*value.type.shape, *value.type.layout.strides)
    return (term.name for term in terms if isinstance(term, Symbol))
