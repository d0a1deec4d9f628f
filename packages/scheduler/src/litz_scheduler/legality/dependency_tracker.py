"""Dependencies between groups: by data, versions of buffers, side-effect tokens and symbols."""

from __future__ import annotations

from collections.abc import Iterator

from litz_ir.loops import (
    Argument,
    Assert,
    Call,
    HostScalar,
    LoopGraph,
    Operation,
    Pointwise,
    Reduction,
    Region,
    ScalarInput,
    ScalarRef,
    Scan,
    Scatter,
    Value,
    View,
    sizes_in,
)
from litz_ir.scalar import Expr, Scalar, walk
from litz_ir.symbols import Size, Symbol, free_symbols
from litz_scheduler.analysis.graph_facts import axes_of, memory_roots, overwritten_by


class DependencyTracker:
    """The last group to define each value, access each memory, use each token and define each symbol.

    Groups are numbers, which may have been merged since they were entered. Symbols bound by arguments have no
    definer.
    """

    def __init__(self, graph: LoopGraph) -> None:
        self.roots = memory_roots(graph)
        self.owner: dict[str, int] = {}
        self._touching: dict[str, set[int]] = {}
        self._tokens: dict[str, int] = {}
        self._definers: dict[str, int] = {}
        self._bound = set(_input_symbols(graph))

    def of(self, operation: Operation) -> set[int]:
        """Return the groups that must run before an operation.

        They define the values that it reads, were last to use its token, or access the memory that it overwrites.
        """
        needed = {self.owner[name] for name in operation.reads if name in self.owner}
        needed.update(self._tokens[token] for token in operation.tokens if token in self._tokens)
        for name in overwritten_by(operation):
            needed.update(self._touching.get(self._root(name), ()))
            if name in self.owner:
                needed.add(self.owner[name])
        if self._definers:
            needed.update(self._definers[name] for name in _used_symbols(operation) if name in self._definers)
        return needed

    def enter(self, operation: Operation, number: int) -> None:
        """Enter the definitions and accesses of an operation of the group ``number``."""
        for name in operation.reads:
            self._touching.setdefault(self._root(name), set()).add(number)
        for name in overwritten_by(operation):
            # Later accesses depend on this group alone, since it depends on all earlier ones.
            self._touching[self._root(name)] = {number}
        for value in operation.results:
            self.owner[value.name] = number
        self._tokens.update((token, number) for token in operation.tokens)
        for name in _defined_symbols(operation):
            if name not in self._bound:
                self._definers.setdefault(name, number)
        if isinstance(operation, Assert):
            # An assertion about an unbacked symbol runs before all later uses of the symbol.
            self._definers.update((name, number) for name in _used_symbols(operation) & self._definers.keys())

    def _root(self, name: str) -> str:
        return self.roots.get(name, name)


def _input_symbols(graph: LoopGraph) -> Iterator[str]:
    """Yield the symbols that arguments bind.

    They are scalar inputs, and symbols that are a size or stride of an input by themselves.
    """
    for each in graph.inputs:
        if isinstance(each, ScalarInput):
            yield each.symbol or each.name
        elif isinstance(each, Value):
            layout = each.type.layout
            yield from (t.name for t in (*each.type.shape, *layout.strides) if isinstance(t, Symbol))


def _defined_symbols(operation: Operation) -> set[str]:
    """Return the symbols that an operation defines.

    They are a host scalar's own, and those in the sizes and strides of the results of a call or region.
    """
    if isinstance(operation, HostScalar):
        return {operation.symbol}
    if isinstance(operation, Call | Region):
        return _symbols_in(t for v in operation.results for t in (*v.type.shape, *v.type.layout.strides))
    return set()


def _used_symbols(operation: Operation) -> set[str]:
    """Return every symbol and scalar in the sizes, bodies and arguments of an operation."""
    types = [value.type for value in operation.results]
    found = _symbols_in(
        t for type_ in types for t in (*type_.shape, *type_.layout.strides, type_.layout.offset)
    )
    found |= _symbols_in(axis.size for axis in axes_of(operation))
    for body in _bodies(operation):
        found |= body.free_symbols
        found.update(node.name for node in walk(body) if isinstance(node, Scalar))
    if isinstance(operation, View | Scatter):
        found |= _symbols_in(operation.index)
    if isinstance(operation, Call | Region):
        attributes = tuple(value for _, value in operation.attributes) if isinstance(operation, Call) else ()
        found.update(_argument_symbols((*operation.arguments, *attributes)))
    return found


def _bodies(operation: Operation) -> tuple[Expr, ...]:
    """Return the expressions that an operation evaluates."""
    match operation:
        case Pointwise() | Reduction() | Scan():
            return operation.bodies
        case Scatter() | HostScalar():
            return (operation.body,)
        case Assert():
            return (operation.condition,)
    return ()


def _symbols_in(terms: Iterator[Size] | tuple[Size, ...]) -> set[str]:
    return {name for term in terms for name in free_symbols(term)}


def _argument_symbols(argument: Argument) -> Iterator[str]:
    """Yield the symbols and scalars in an argument of a call."""
    if isinstance(argument, tuple):
        for item in argument:
            yield from _argument_symbols(item)
    elif isinstance(argument, ScalarRef):
        yield argument.name
    for size in () if isinstance(argument, tuple) else sizes_in(argument):
        yield from free_symbols(size)
