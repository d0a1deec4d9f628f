"""Passes that make the loop graph smaller without changing what it computes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from litz_ir.dtypes import DType
from litz_ir.loops import (
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
from litz_ir.scalar import Expr, cast, const, op, substitute_expr
from litz_ir.symbols import Size, SymbolTable, free_symbols, simplify, substitute
from litz_scheduler.graph_facts import (
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


def has_effect(operation: Operation) -> bool:
    """True when an operation must run though nothing reads its results."""
    if isinstance(operation, Mutation) or operation.tokens or not operation.results:
        return not isinstance(operation, HostScalar)
    if any(value.replaces is not None for value in operation.results):
        return True
    return isinstance(operation, Call) and bool(operation.mutates)


def _symbols_of_inputs(graph: LoopGraph) -> frozenset[str]:
    """The symbols that the graph's arguments settle."""
    found = {i.symbol or i.name for i in graph.inputs if isinstance(i, ScalarInput)}
    for value in graph.inputs:
        if isinstance(value, Value):
            found.update(*map(free_symbols, (*value.type.shape, *value.type.layout.strides)))
    return frozenset(found)


def _decides_a_size(operation: Operation, known: frozenset[str]) -> bool:
    """True for a call whose result's size is data: others may be as large without reading it."""
    sizes = (size for value in operation.results for size in value.type.shape)
    return isinstance(operation, Call) and any(free_symbols(size) - known for size in sizes)


@dataclass(frozen=True, slots=True)
class DeadCode:
    """Drop operations whose results nobody reads, that have no effect and decide no size."""

    name: str = "dead-code"
    ulp: int = 0

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        live, known = output_names(data), _symbols_of_inputs(data)
        kept: list[Operation] = []
        for operation in reversed(data.operations):
            wanted = any(value.name in live for value in operation.results) or isinstance(
                operation, HostScalar
            )
            if wanted or has_effect(operation) or _decides_a_size(operation, known):
                live.update(operation.reads)
                live.update(overwritten_by(operation))
                kept.append(operation)
        return data.with_operations(tuple(reversed(kept)))


@dataclass(frozen=True, slots=True)
class UnitReductions:
    """Turn reductions over a single point into pointwise loops, which fuse with more and can be inlined."""

    name: str = "unit-reductions"
    ulp: int = 0

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        return data.with_operations(tuple(map(_without_reduction, data.operations)))


def _without_reduction(operation: Operation) -> Operation:
    if not isinstance(operation, Reduction) or not isinstance(operation.combiner, NamedCombiner):
        return operation
    if any(axis.size != 1 for axis in operation.reduce_axes):
        return operation
    at_point: dict[str, Size] = {axis.name: 0 for axis in operation.reduce_axes}
    values = tuple(substitute_expr(body, at_point) for body in operation.bodies)
    dtypes = tuple(value.type.dtype for value in operation.results)
    bodies = _of_one(operation.combiner, values, dtypes)
    return Pointwise(results=operation.results, axes=operation.axes, bodies=bodies, origin=operation.origin)


def _of_one(kind: NamedCombiner, values: tuple[Expr, ...], dtypes: tuple[DType, ...]) -> tuple[Expr, ...]:
    """What combining one element gives; differences with itself keep the NaN of what is not finite."""
    value, dtype = values[0], dtypes[0]
    match kind.name:
        case "sum" if dtype.is_float:
            # Sums start at zero, so that none is a negative zero.
            return (op("add", cast(value, dtype), const(0.0, dtype)),)
        case "welford":
            value = cast(value, dtype)
            apart = op("sub", value, value)
            return value, cast(op("mul", apart, apart), dtypes[1]), const(1, dtypes[2])
        case "online_softmax":
            return cast(value, dtype), cast(op("exp", op("sub", value, value)), dtypes[1])
    return tuple(cast(each, wanted) for each, wanted in zip(values, dtypes, strict=True))


@dataclass(frozen=True, slots=True)
class CommonSubexpressions:
    """Compute equal operations once.

    Values that the graph returns, itself or views of them, or that are overwritten later, stay apart: eager gives them
    memory of their own.
    """

    name: str = "common-subexpressions"
    ulp: int = 0

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        apart = output_names(data) | overwritten_names(data) | output_memory(data).keys()
        rewriter = Rewriter(data)
        seen: dict[tuple[Operation, tuple[object, ...]], Operation] = {}
        pure = (Pointwise, Reduction, Scan, Scatter, View, ContractionCall)
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
        kept = output_names(data) | shared_output_memory(data)
        versions = VersionDeadlines(data)
        values = data.values()
        views: dict[str, View] = {}
        operations: list[Operation] = []
        for position, operation in enumerate(data.operations):
            current = operation
            if isinstance(current, View):
                base = views.get(current.base)
                # Returned views keep the memory that they share: what aliases it must go through it.
                if base is not None and current.base not in kept and _holds(base.base, position, versions):
                    current = compose(base, current, values[base.base].type, data.symbols)
                views[current.name] = current
            operations.append(current)
        return data.with_operations(tuple(operations))


def _holds(name: str, position: int, versions: VersionDeadlines) -> bool:
    """True when a value is not overwritten before ``position``."""
    deadline = versions.deadline(name)
    return deadline is None or position < deadline


def compose(base: View, view: View, root: TensorType, symbols: SymbolTable) -> View:
    """The view of ``base``'s own base, which has type ``root``, that shows what ``view`` shows of ``base``."""
    mapping: dict[str, Size] = {axis.name: term for axis, term in zip(base.axes, view.index, strict=True)}
    ranges = axis_ranges(view.axes, symbols)
    index = tuple(simplify(substitute(term, mapping), ranges) for term in base.index)
    made = replace(
        view, base=base.base, index=index, aliases=view.aliases and base.aliases, base_strides=None
    )
    given = base.base_strides is not None or view.base_strides is not None
    if made.aliases and (given or not all(isinstance(t, int) or t.is_polynomial for t in index)):
        return replace(made, base_strides=_given(base, view, made, root, symbols))
    return made


def _given(
    base: View, view: View, composed: View, root: TensorType, symbols: SymbolTable
) -> tuple[Size, ...] | None:
    """The strides of ``root`` where those of ``view`` follow from them through ``base``, and the index of the composed
    view does not tell."""
    if _keeps_strides(composed, root, symbols):
        return None
    for each, over in ((base, root), (view, base.results[0].type)):
        if not _keeps_strides(each, over, symbols):
            return None
    return root.layout.strides


def _keeps_strides(view: View, base: TensorType, symbols: SymbolTable) -> bool:
    """True when a view of a buffer of type ``base`` is an alias with the strides of its own type."""
    shown = alias_type(view, base, symbols)
    return shown is not None and same_strides(view.results[0].type, shown.layout)
