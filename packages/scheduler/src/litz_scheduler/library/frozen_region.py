"""What is computed from held inputs alone, gathered in one region whose results are kept from call to call."""

from __future__ import annotations

from litz_ir.loops import Argument, LoopGraph, Operation, Ref, Region, TensorType, Value
from litz_ir.symbols import SymbolTable


class FrozenRegion:
    """The operations and results of the region so far. They may read ``lasting`` values and one another.

    A region that the graph has already is taken up: ``others`` are the graph's operations without it.
    """

    def __init__(self, graph: LoopGraph) -> None:
        self.lasting = set(graph.frozen)
        self.others: list[Operation] = []
        self._graph = graph
        self._operations: list[Operation] = []
        self._results: list[Value] = []
        for operation in graph.operations:
            if isinstance(operation, Region) and operation.kind == "frozen":
                self._operations += operation.subgraphs[0].operations
                self._results += operation.results
                self.lasting.update(value.name for value in operation.results)
            else:
                self.others.append(operation)

    def compute(self, operation: Operation) -> None:
        """Add an operation over lasting values, or over results of earlier ones."""
        self._operations.append(operation)

    def result(self, name: str, type_: TensorType) -> str:
        """Hand a value that was computed here to the graph, under its name."""
        self._results.append(Value(name, type_))
        self.lasting.add(name)
        return name

    def region(self) -> tuple[Region, ...]:
        """The region, which comes before all that reads its results; nothing where nothing is kept."""
        if not self._results:
            return ()
        read = {name for operation in self._operations for name in operation.reads}
        inputs = tuple(item for item in self._graph.inputs if item.name in read)
        arguments: tuple[Argument, ...] = tuple(Ref(item.name) for item in inputs)
        graph = LoopGraph(
            name=f"{self._graph.name}_kept",
            symbols=SymbolTable(),
            inputs=inputs,
            constants=(),
            operations=tuple(self._operations),
            outputs=tuple(Ref(value.name) for value in self._results),
        )
        return (Region(results=tuple(self._results), kind="frozen", subgraphs=(graph,), arguments=arguments),)
