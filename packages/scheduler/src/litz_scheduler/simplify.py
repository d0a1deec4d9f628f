"""Passes that make the loop graph smaller without changing what it computes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from litz_ir.loops.nodes import (
    Call, Contraction, HostScalar, LoopGraph, Mutation, Operation, Pointwise, Reduction, Ref, Scan, Scatter, View,
)  # fmt: skip
from litz_ir.loops.rewriter import Rewriter
from litz_ir.passes.base import PassContext
from litz_ir.symbols.simplify import simplify
from litz_ir.symbols.table import SymbolTable
from litz_ir.symbols.ranges import Range, extent
from litz_ir.loops.nodes import Axis
from litz_ir.symbols.term import Size, substitute


def output_names(graph: LoopGraph) -> set[str]:
    """The values that the graph returns."""
    return {output.name for output in graph.outputs if isinstance(output, Ref)}


def replaced_names(graph: LoopGraph) -> dict[str, int]:
    """Values that a later operation overwrites in place, with the position of that operation."""
    found: dict[str, int] = {}
    for position, operation in enumerate(graph.operations):
        if isinstance(operation, Mutation):
            found[operation.target] = position
        elif isinstance(operation, Call):
            found.update((read, position) for read, _ in operation.mutates)
        found.update((v.replaces, position) for v in operation.results if v.replaces is not None)
    return found


def axis_ranges(axes: tuple[Axis, ...], symbols: SymbolTable) -> dict[str, Range]:
    """What is known of axes and symbols: an axis runs over ``[0, size)``."""
    ranges = dict(symbols.ranges())
    for axis in axes:
        ranges[axis.name] = extent(axis.size)
    return ranges


def has_effect(operation: Operation) -> bool:
    """True when an operation must run though nothing reads its results."""
    if isinstance(operation, Mutation) or operation.token or not operation.results:
        return not isinstance(operation, HostScalar)
    if any(value.replaces is not None for value in operation.results):
        return True
    return isinstance(operation, Call) and bool(operation.mutates)


@dataclass(frozen=True, slots=True)
class DeadCode:
    """Drop operations whose results nobody reads and that have no effect."""

    name: str = "dead-code"
    ulp: int = 0

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        live = output_names(data)
        kept: list[Operation] = []
        for operation in reversed(data.operations):
            wanted = any(value.name in live for value in operation.results)
            if wanted or has_effect(operation) or isinstance(operation, HostScalar):
                live.update(operation.reads)
                kept.append(operation)
        return data.with_operations(tuple(reversed(kept)))


@dataclass(frozen=True, slots=True)
class CommonSubexpressions:
    """Compute equal operations once.

    Values that the graph returns, or that are overwritten later, stay apart: eager gives them memory of their own.
    """

    name: str = "common-subexpressions"
    ulp: int = 0

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        apart = output_names(data) | replaced_names(data).keys()
        rewriter = Rewriter(data)
        seen: dict[tuple[Operation, tuple[object, ...]], Operation] = {}
        pure = (Pointwise, Reduction, Scan, Scatter, View, Contraction)
        for old in data.operations:
            operation = rewriter.current(old)
            mergeable = isinstance(operation, pure) and not operation.token
            if not mergeable or any(v.name in apart or v.replaces for v in operation.results):
                rewriter.append(operation)
                continue
            key = (replace(operation, results=()), tuple(value.type for value in operation.results))
            first = seen.setdefault(key, operation)
            if first is operation:
                rewriter.append(operation)
            else:
                for value, earlier in zip(operation.results, first.results, strict=True):
                    rewriter.rename(value, earlier.name)
        return rewriter.freeze()


@dataclass(frozen=True, slots=True)
class ComposeViews:
    """Let a view of a view index the first base directly."""

    name: str = "compose-views"
    ulp: int = 0

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        returned = output_names(data)
        views: dict[str, View] = {}
        operations: list[Operation] = []
        for operation in data.operations:
            current = operation
            if isinstance(current, View):
                base = views.get(current.base)
                # A returned view keeps its identity: what aliases it must go through it.
                if base is not None and current.base not in returned:
                    current = compose(base, current, data.symbols)
                views[current.name] = current
            operations.append(current)
        return data.with_operations(tuple(operations))


def compose(base: View, view: View, symbols: SymbolTable) -> View:
    """The view of ``base``'s own base that shows what ``view`` shows of ``base``."""
    mapping: dict[str, Size] = {axis.name: term for axis, term in zip(base.axes, view.index, strict=True)}
    ranges = axis_ranges(view.axes, symbols)
    index = tuple(simplify(substitute(term, mapping), ranges) for term in base.index)
    return replace(view, base=base.base, index=index, aliases=view.aliases and base.aliases)
