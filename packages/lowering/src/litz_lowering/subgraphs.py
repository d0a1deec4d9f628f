"""Subgraphs of control flow: each lowered once for what is demanded of it, and closed over the symbols around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from litz_ir.loops import Call, HostScalar, LoopGraph, Region, ScalarInput, Value
from litz_ir.symbols import Symbol, SymbolInfo, symbol
from litz_lowering.values import ResultType, Subgraph


@dataclass(frozen=True, slots=True)
class OutputRequirements:
    """What a subgraph's outputs must be.

    The first ``carried`` have the types of the first inputs; ``types`` gives those of others, by position, where they
    matter. Numbers for which a type is demanded become tensors of one element. Outputs have memory of their own, unless
    they are ``views`` of inputs.
    """

    carried: int = 0
    types: tuple[ResultType, ...] = ()
    views: bool = False


Lower = Callable[[Subgraph, OutputRequirements], LoopGraph]


class Subgraphs:
    """The subgraphs of one graph. The same one under the same demand is one object, however often it is run."""

    def __init__(self, lower: Lower) -> None:
        self._lower = lower
        self._lowered: dict[tuple[int, OutputRequirements], LoopGraph] = {}
        self._tailored: dict[tuple[int, tuple[int, ...], tuple[str, ...]], LoopGraph] = {}

    def lower(self, subgraph: Subgraph, demand: OutputRequirements) -> LoopGraph:
        """The loop graph of a subgraph."""
        key = (id(subgraph.module), demand)
        if key not in self._lowered:
            self._lowered[key] = self._lower(subgraph, demand)
        return self._lowered[key]

    def tailored(
        self, graph: LoopGraph, kept: tuple[int, ...] | None, symbols: Iterable[SymbolInfo]
    ) -> LoopGraph:
        """A lowered graph with the outputs at ``kept`` alone (None: all), and ``symbols`` as further inputs."""
        infos = tuple(symbols)
        outputs = tuple(range(len(graph.outputs))) if kept is None else kept
        key = (id(graph), outputs, tuple(info.name for info in infos))
        if key not in self._tailored:
            bound = set(bound_symbols(graph))
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
    """The symbols that a graph speaks of and that nothing in it binds: they come from around it."""
    bound = set(bound_symbols(graph))
    return tuple(info for info in graph.symbols if info.name not in bound)


def bound_symbols(graph: LoopGraph) -> Iterator[str]:
    """The symbols that a graph's arguments, calls and host scalars give a value to."""
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
