"""Canonicalisation of the loop graph: DCE, CSE, unit reductions and composition of views."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import chain

from litz_ir.loops import (
    Axis,
    Call,
    ContractionCall,
    HostScalar,
    LoopGraph,
    Mutation,
    NamedCombiner,
    Operation,
    Pointwise,
    Reduction,
    Rewriter,
    ScalarInput,
    Scan,
    Scatter,
    TensorType,
    Value,
    View,
)
from litz_ir.passes import PassContext
from litz_ir.scalar import Expr, substitute_expr, substitute_params
from litz_ir.symbols import Size, SymbolTable, free_symbols, simplify, substitute
from litz_scheduler.analysis.graph_facts import (
    VersionDeadlines,
    alias_type,
    axis_ranges,
    output_memory,
    output_names,
    overwritten_by,
    overwritten_names,
    same_strides,
    shared_output_memory,
)


def _has_effect(operation: Operation) -> bool:
    """Return whether an operation must run even if nothing reads its results."""
    if isinstance(operation, Mutation) or operation.tokens or not operation.results:
        return not isinstance(operation, HostScalar)
    if any(value.replaces is not None for value in operation.results):
        return True
    return isinstance(operation, Call) and bool(operation.mutates)


def _symbols_of_inputs(graph: LoopGraph) -> frozenset[str]:
    """Return the symbols whose values follow from the graph's inputs."""
    symbols = {i.symbol or i.name for i in graph.inputs if isinstance(i, ScalarInput)}
    for value in graph.inputs:
        if isinstance(value, Value):
            symbols.update(*map(free_symbols, (*value.type.shape, *value.type.layout.strides)))
    return frozenset(symbols)


def _decides_a_size(operation: Operation, known: frozenset[str]) -> bool:
    """Return whether a call defines an unbacked symbol by the shape of its result.

    Such a call remains, because other values may have that size without reading the result.
    """
    sizes = (size for value in operation.results for size in value.type.shape)
    return isinstance(operation, Call) and any(free_symbols(size) - known for size in sizes)


@dataclass(frozen=True, slots=True)
class DeadCode:
    """Remove operations whose results are not read, that have no side effect and that define no symbol (DCE)."""

    name: str = "dead-code"
    """The name of the pass."""
    ulp: int = 0
    """The bound on changed results, in ULP."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        live, known = output_names(data), _symbols_of_inputs(data)
        remaining: list[Operation] = []
        for operation in reversed(data.operations):
            is_read = any(value.name in live for value in operation.results) or isinstance(
                operation, HostScalar
            )
            if is_read or _has_effect(operation) or _decides_a_size(operation, known):
                live.update(operation.reads)
                live.update(overwritten_by(operation))
                remaining.append(operation)
        return data.with_operations(tuple(reversed(remaining)))


@dataclass(frozen=True, slots=True)
class UnitReductions:
    """Replace reductions over unit axes by pointwise loops, which fuse with more operations and can be inlined."""

    name: str = "unit-reductions"
    """The name of the pass."""
    ulp: int = 0
    """The bound on changed results, in ULP."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        return data.with_operations(tuple(chain.from_iterable(map(_without_reduction, data.operations))))


def _without_reduction(operation: Operation) -> tuple[Operation, ...]:
    if not isinstance(operation, Reduction) or not isinstance(operation.combiner, NamedCombiner):
        return (operation,)
    if any(axis.size != 1 for axis in operation.reduce_axes):
        return (operation,)
    at_point: dict[str, Size] = {axis.name: 0 for axis in operation.reduce_axes}
    values = tuple(substitute_expr(body, at_point) for body in operation.bodies)
    definition = operation.combiner.kind.definition(tuple(value.dtype for value in values))
    bodies = tuple(substitute_params(each, values) for each in definition.initial)
    loops: dict[tuple[Axis, ...], list[tuple[Value, Expr]]] = defaultdict(list)
    for value, body in zip(operation.results, bodies, strict=True):
        loops[_axes_of(value, operation.axes)].append((value, body))
    return tuple(
        Pointwise(
            results=tuple(value for value, _ in members), axes=axes,
            bodies=tuple(body for _, body in members), origin=operation.origin,
        )
        for axes, members in loops.items()
    )  # fmt: skip


def _axes_of(value: Value, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Return the axes of a reduction, with one point along those on which the result does not depend."""
    return tuple(
        Axis(axis.name, 1) if size == 1 else axis for axis, size in zip(axes, value.type.shape, strict=True)
    )


@dataclass(frozen=True, slots=True)
class CommonSubexpressions:
    """Compute equal operations once (CSE).

    Values that are overwritten, or returned themselves or as views, are excluded: eager gives each its own memory.
    """

    name: str = "common-subexpressions"
    """The name of the pass."""
    ulp: int = 0
    """The bound on changed results, in ULP."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        excluded = output_names(data) | overwritten_names(data) | output_memory(data).keys()
        rewriter = Rewriter(data)
        representatives: dict[tuple[Operation, tuple[object, ...]], Operation] = {}
        pure = (Pointwise, Reduction, Scan, Scatter, View, ContractionCall)
        for old in data.operations:
            operation = rewriter.current(old)
            mergeable = isinstance(operation, pure) and not operation.token
            if not mergeable or any(v.name in excluded or v.replaces for v in operation.results):
                rewriter.append(operation)
                continue
            key = (replace(operation, results=()), tuple(value.type for value in operation.results))
            first = representatives.setdefault(key, operation)
            if first is operation:
                rewriter.append(operation)
            else:
                for value, earlier in zip(operation.results, first.results, strict=True):
                    rewriter.rename(value, earlier.name)
        return rewriter.freeze()


@dataclass(frozen=True, slots=True)
class ComposeViews:
    """Compose a view of a view into one view of the first base."""

    name: str = "compose-views"
    """The name of the pass."""
    ulp: int = 0
    """The bound on changed results, in ULP."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        returned = output_names(data) | shared_output_memory(data)
        versions = VersionDeadlines(data)
        values = data.values()
        views: dict[str, View] = {}
        operations: list[Operation] = []
        for position, operation in enumerate(data.operations):
            current = operation
            if isinstance(current, View):
                base = views.get(current.base)
                # A view of a returned view remains a view of it, so that both have the same memory.
                if (
                    base is not None
                    and current.base not in returned
                    and _is_current(base.base, position, versions)
                ):
                    current = _compose(base, current, values[base.base].type, data.symbols)
                views[current.name] = current
            operations.append(current)
        return data.with_operations(tuple(operations))


def _is_current(name: str, position: int, versions: VersionDeadlines) -> bool:
    """Return whether a value is not overwritten before ``position``."""
    deadline = versions.deadline(name)
    return deadline is None or position < deadline


def _compose(base: View, view: View, root: TensorType, symbols: SymbolTable) -> View:
    """Return the composition of ``view`` and its base: a view of ``base.base``, which has the type ``root``."""
    mapping: dict[str, Size] = {axis.name: term for axis, term in zip(base.axes, view.index, strict=True)}
    ranges = axis_ranges(view.axes, symbols)
    index = tuple(simplify(substitute(term, mapping), ranges) for term in base.index)
    composed = replace(
        view, base=base.base, index=index, aliases=view.aliases and base.aliases, base_strides=None
    )
    has_base_strides = base.base_strides is not None or view.base_strides is not None
    if composed.aliases and (
        has_base_strides or not all(isinstance(t, int) or t.is_polynomial for t in index)
    ):
        return replace(composed, base_strides=_base_strides(base, view, composed, root, symbols))
    return composed


def _base_strides(
    base: View, view: View, composed: View, root: TensorType, symbols: SymbolTable
) -> tuple[Size, ...] | None:
    """Return the strides of ``root`` that a composed view needs to be an alias.

    ``None`` where the composed index has the strides of the view by itself, or where ``base`` or ``view`` is no alias
    with the strides of its type.
    """
    if _has_own_strides(composed, root, symbols):
        return None
    for each, over in ((base, root), (view, base.results[0].type)):
        if not _has_own_strides(each, over, symbols):
            return None
    return root.layout.strides


def _has_own_strides(view: View, base: TensorType, symbols: SymbolTable) -> bool:
    """Return whether a view of a buffer of type ``base`` is an alias with the strides of its own type."""
    alias = alias_type(view, base, symbols)
    return alias is not None and same_strides(view.results[0].type, alias.layout)
