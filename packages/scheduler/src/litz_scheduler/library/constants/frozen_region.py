"""The frozen region of a graph: operations on frozen parameters, whose results are reused from call to call."""

from __future__ import annotations

from litz_ir.loops import Argument, LoopGraph, Operation, Ref, Region, TensorType, Value
from litz_ir.symbols import SymbolTable


class FrozenRegion:
    """The frozen region of a graph while operations are added to it.

    It starts with the operations and results of the frozen regions that the graph already has.
    """

    def __init__(self, graph: LoopGraph) -> None:
        self.frozen = set(graph.frozen)
        """Frozen parameters and results of the region: all that its operations may read from outside."""
        self.others: list[Operation] = []
        """The graph's operations outside of frozen regions, in order."""
        self._graph = graph
        self._operations: list[Operation] = []
        self._results: list[Value] = []
        for operation in graph.operations:
            if isinstance(operation, Region) and operation.kind == "frozen":
                self._operations += operation.subgraphs[0].operations
                self._results += operation.results
                self.frozen.update(value.name for value in operation.results)
            else:
                self.others.append(operation)

    def compute(self, operation: Operation) -> None:
        """Add an operation that reads frozen values or results of operations added earlier."""
        self._operations.append(operation)

    def result(self, name: str, type_: TensorType) -> str:
        """Make a value computed in the region one of its results; return its name."""
        self._results.append(Value(name, type_))
        self.frozen.add(name)
        return name

    def region(self) -> tuple[Region, ...]:
        """Return the region, to be put before all its readers; empty where it has no results."""
        if not self._results:
            return ()
        read = {name for operation in self._operations for name in operation.reads}
        inputs = tuple(item for item in self._graph.inputs if item.name in read)
        arguments: tuple[Argument, ...] = tuple(Ref(item.name) for item in inputs)
        graph = LoopGraph(
            name=f"{self._graph.name}_frozen",
            symbols=SymbolTable(),
            inputs=inputs,
            constants=(),
            operations=tuple(self._operations),
            outputs=tuple(Ref(value.name) for value in self._results),
        )
        return (Region(results=tuple(self._results), kind="frozen", subgraphs=(graph,), arguments=arguments),)
