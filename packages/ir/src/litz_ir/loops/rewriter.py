"""Edits of operations and graphs that rename every read of a replaced value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from litz_ir.loops.nodes import (
    Argument,
    Assert,
    Call,
    HostScalar,
    LoopGraph,
    Mutation,
    Operation,
    Output,
    Pointwise,
    Reduction,
    Ref,
    Region,
    Scan,
    Scatter,
    Sort,
    StridedRef,
    Value,
    View,
)
from litz_ir.scalar.expr import Indirect, Load, map_indirects, transform
from litz_ir.scalar.node import Expr
from litz_ir.symbols.term import Size


def map_bodies(operation: Operation, change: Callable[[Expr], Expr]) -> Operation:
    """The operation with every body replaced by ``change(body)``, including bodies inside indices."""

    def index(terms: tuple[Size, ...]) -> tuple[Size, ...]:
        def indirect(atom: Indirect) -> Size:
            return atom.of(change(atom.value))

        return tuple(map_indirects(term, indirect) for term in terms)

    match operation:
        case Pointwise() | Reduction() | Scan():
            return replace(operation, bodies=tuple(map(change, operation.bodies)))
        case Scatter():
            return replace(operation, body=change(operation.body), index=index(operation.index))
        case View():
            return replace(operation, index=index(operation.index))
        case Assert():
            return replace(operation, condition=change(operation.condition))
        case HostScalar():
            return replace(operation, body=change(operation.body))
    return operation


def _rename_argument(argument: Argument, names: Mapping[str, str]) -> Argument:
    """The argument with its references renamed."""
    if isinstance(argument, Ref | StridedRef):
        return replace(argument, name=names.get(argument.name, argument.name))
    if isinstance(argument, tuple):
        return tuple(_rename_argument(item, names) for item in argument)
    return argument


def _rename_loads(body: Expr, names: Mapping[str, str]) -> Expr:
    """The body with the buffers that it loads from renamed."""

    def visit(node: Expr) -> Expr:
        if isinstance(node, Load) and node.buffer in names:
            return Load(names[node.buffer], node.index, node.dtype)
        return node

    return transform(body, visit)


def rename_reads(operation: Operation, names: Mapping[str, str]) -> Operation:
    """The operation with its reads renamed by ``names``, which maps old to new; other names stay."""
    if not any(name in names for name in operation.reads):
        return operation
    new = map_bodies(operation, lambda body: _rename_loads(body, names))

    def pick(name: str) -> str:
        return names.get(name, name)

    match new:
        case Scatter():
            return replace(new, base=pick(new.base))
        case View():
            return replace(new, base=pick(new.base))
        case Sort():
            return replace(new, source=pick(new.source))
        case Mutation():
            return replace(new, target=pick(new.target), source=pick(new.source))
        case Call():
            return replace(
                new,
                arguments=tuple(_rename_argument(a, names) for a in new.arguments),
                attributes=tuple((key, _rename_argument(a, names)) for key, a in new.attributes),
                mutates=tuple((pick(read), result) for read, result in new.mutates),
                aliases=tuple((result, pick(read)) for result, read in new.aliases),
            )
        case Region():
            return replace(new, arguments=tuple(_rename_argument(a, names) for a in new.arguments))
    return new


def _rename_output(output: Output, names: Mapping[str, str]) -> Output:
    """The output with its reference renamed."""
    if not isinstance(output, Ref):
        return output
    return replace(output, name=names.get(output.name, output.name))


class Rewriter:
    """Builds the next version of a graph: a pass appends operations in order and calls :meth:`freeze` once.

    :meth:`rename` redirects later reads of a value, outputs included, so a pass drops an operation by renaming its
    result. Each operation is visited once, so the cost is linear.
    """

    def __init__(self, graph: LoopGraph) -> None:
        self.graph = graph
        self.names: dict[str, str] = {}
        self.operations: list[Operation] = []

    def current(self, operation: Operation) -> Operation:
        """The operation with the renamings so far applied to its reads."""
        return rename_reads(operation, self.names) if self.names else operation

    def append(self, operation: Operation) -> None:
        """Add an operation as it is."""
        self.operations.append(operation)

    def rename(self, old: Value, new: str) -> None:
        """Make every later read of ``old`` read ``new``."""
        self.names[old.name] = self.names.get(new, new)

    def freeze(self) -> LoopGraph:
        """The finished graph."""
        outputs = tuple(_rename_output(o, self.names) for o in self.graph.outputs)
        return replace(self.graph, operations=tuple(self.operations), outputs=outputs)
