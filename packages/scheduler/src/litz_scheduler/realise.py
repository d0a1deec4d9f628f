"""Inline or realise: which values live on only in their readers' bodies, and which get memory.

Views cost nothing in a loop, so loops always read through them. A pointwise value is computed again by its readers when
that is cheaper than a round trip through memory; it never is when a call reads it, when the graph returns it, or when
what it reads is overwritten before its reader runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from litz_ir.fused.decision import Decision
from litz_ir.loops.nodes import (
    Assert, Axis, Call, HostScalar, LoopGraph, Mutation, Operation, Pointwise, Reduction, Region, Scan, Scatter, Sort,
    TensorType, Value, View, references,
)  # fmt: skip
from litz_ir.loops.rewriter import map_bodies
from litz_ir.passes.base import PassContext
from litz_ir.scalar.expr import Expr, Load, substitute_expr, transform
from litz_ir.symbols.simplify import simplify
from litz_ir.symbols.term import Size, Term, coefficient, substitute, symbol

from litz_scheduler.cost.compute import body_cost, body_size, load_count
from litz_scheduler.cost.traffic import estimate, points, type_bytes
from litz_scheduler.options import SchedulerOptions
from litz_scheduler.simplify import axis_ranges, output_names, replaced_names

MANY = 8
"""Readers are counted up to here; more is all the same."""


def is_strided(view: View) -> bool:
    """True when the view's index is linear in its axes, so that strides alone can express it."""
    names = {axis.name for axis in view.axes}
    for term in view.index:
        if not isinstance(term, Term):
            continue
        for name in term.free_symbols & names:
            slope = coefficient(term, name)
            if slope is None or (isinstance(slope, Term) and slope.free_symbols & names):
                return False
    return True


def alias_type(view: View, base: TensorType) -> TensorType | None:
    """The type of a strided view of a buffer of type ``base``, or ``None`` when strides cannot express it."""
    names = [axis.name for axis in view.axes]
    element = base.layout.element(view.index)
    strides: list[Size] = []
    for name in names:
        slope = coefficient(element, name)
        if slope is None or (isinstance(slope, Term) and slope.free_symbols & set(names)):
            return None
        strides.append(slope)
    offset = substitute(element, dict.fromkeys(names, 0))
    result = view.results[0].type
    return replace(result, layout=replace(result.layout, strides=tuple(strides), offset=offset))


def axes_of(operation: Operation) -> tuple[Axis, ...]:
    """Every axis that the operation's bodies may use."""
    match operation:
        case Reduction():
            return operation.axes + operation.reduce_axes
        case Scan():
            return (*operation.axes, operation.scan_axis)
        case Pointwise() | Scatter() | View():
            return operation.axes
    return ()


def in_memory(graph: LoopGraph) -> set[str]:
    """Values that something other than a loop reads, so that they must exist in memory."""
    names = output_names(graph)
    for operation in graph.operations:
        match operation:
            case Call():
                names.update(operation.reads)
            case Mutation():
                names.add(operation.target)
            case Sort():
                names.add(operation.source)
            case Scatter():
                names.add(operation.base)
            case Region():
                names.update(name for argument in operation.arguments for name in references(argument))
            case Assert() | HostScalar():
                names.update(operation.reads)
    for operation in reversed(graph.operations):
        if isinstance(operation, View) and operation.name in names and is_strided(operation):
            names.add(operation.base)
    return names


@dataclass(frozen=True, slots=True)
class Inline:
    """Inline pointwise values and views into the loops that read them; turn mutations into loops that store in place."""

    options: SchedulerOptions = SchedulerOptions()
    name: str = "inline"
    ulp: int = 0

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        graph = data.with_operations(tuple(_mutation_as_loop(o, data) for o in data.operations))
        choices = _Choices(graph, self.options, context)
        inlined = choices.decide()
        return _substitute(graph, inlined, choices.copied)


def _mutation_as_loop(operation: Operation, graph: LoopGraph) -> Operation:
    if not isinstance(operation, Mutation):
        return operation
    result = replace(operation.results[0], replaces=operation.target)
    axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(result.type.shape))
    index = tuple(symbol(axis.name) for axis in axes)
    body = Load(operation.source, index, result.type.dtype)
    return Pointwise(results=(result,), axes=axes, bodies=(body,), origin=operation.origin, token=operation.token)


class _Choices:
    """Walks the graph from its end, so that the readers of a value are settled before the value is."""

    def __init__(self, graph: LoopGraph, options: SchedulerOptions, context: PassContext) -> None:
        self.graph = graph
        self.options = options
        self.context = context
        self.memory = in_memory(graph)
        self.replaced = replaced_names(graph)
        self.touching = _touching(graph, set(self.replaced))
        self.readers: dict[str, list[int]] = {}
        self.copied: set[str] = set()
        self.limit = min((c.max_statements for c in context.capabilities.values()), default=512)

    def decide(self) -> set[str]:
        """The names of the values to inline."""
        inlined: set[str] = set()
        for position in range(len(self.graph.operations) - 1, -1, -1):
            operation = self.graph.operations[position]
            chosen = False
            if isinstance(operation, View | Pointwise) and len(operation.results) == 1:
                chosen = self._inline(operation)
                if chosen:
                    inlined.add(operation.name)
            # The readers of an inlined value read in its place whatever it reads.
            through = self.readers.get(operation.name, []) if chosen else [position]
            for name in operation.reads:
                seen = self.readers.setdefault(name, [])
                if len(seen) < MANY:
                    seen.extend(p for p in through if p not in seen)
        return inlined

    def _inline(self, operation: View | Pointwise) -> bool:
        name = operation.name
        value = operation.results[0]
        if value.replaces is not None or name in self.memory and isinstance(operation, Pointwise):
            return self._keep(value, "keep.output" if name in output_names(self.graph) else "keep.called")
        readers = self.readers.get(name, [])
        if name in self.touching and not self._before_overwrite(readers):
            self.copied.add(name)
            return self._keep(value, "refuse.version")
        if name in self.memory:
            # Memory holds the view too, but loops still read through it.
            return False
        if isinstance(operation, View):
            return True
        return self._pays(operation, value, readers)

    def _pays(self, operation: Pointwise, value: Value, readers: list[int]) -> bool:
        body = operation.bodies[0]
        cost, size, reads = body_cost(body), body_size(body), load_count(body)
        if size > self.limit // 4:
            return self._keep(value, "keep.size")
        if reads == 0 and cost <= self.options.inline_cost:
            return self._take(value, "inline.cheap")
        if len(readers) <= 1 and not self._expands(operation, readers, cost):
            return self._take(value, "inline.single")
        if cost <= self.options.inline_cost and reads <= self.options.inline_loads and len(readers) < MANY:
            return self._take(value, "inline.cheap")
        return self._keep(value, "keep.heavy")

    def _expands(self, operation: Pointwise, readers: list[int], cost: int) -> bool:
        """True when a reader would compute the value several times and pay for it."""
        if cost <= self.options.inline_cost:
            return False
        symbols = self.graph.symbols
        own = estimate(points(operation.axes), symbols)
        for position in readers:
            reader = self.graph.operations[position]
            if estimate(points(axes_of(reader)), symbols) > own and own > 1:
                return True
        return False

    def _before_overwrite(self, readers: list[int]) -> bool:
        first = min(self.replaced.values())
        return all(p < first for p in readers)

    def _keep(self, value: Value, reason: str) -> bool:
        self.context.decide(Decision("realise", value.name, "keep", reason, type_bytes(value.type)))
        return False

    def _take(self, value: Value, reason: str) -> bool:
        self.context.decide(Decision("realise", value.name, "inline", reason, type_bytes(value.type)))
        return True


def _touching(graph: LoopGraph, replaced: set[str]) -> set[str]:
    """Values that read, perhaps through others that may be inlined, a buffer that is overwritten later."""
    found = set(replaced)
    for operation in graph.operations:
        if isinstance(operation, View | Pointwise) and any(name in found for name in operation.reads):
            found.update(value.name for value in operation.results)
    return found - replaced


def _substitute(graph: LoopGraph, inlined: set[str], copied: set[str]) -> LoopGraph:
    definitions: dict[str, tuple[tuple[Axis, ...], Expr]] = {}
    operations: list[Operation] = []
    for operation in graph.operations:
        current = _inline_reads(operation, definitions, graph)
        as_loop = current.name in inlined or current.name in copied
        if isinstance(current, View) and (as_loop or not is_strided(current)):
            dtype = current.results[0].type.dtype
            body = _inline_body(Load(current.base, current.index, dtype), current.axes, definitions, graph)
            current = Pointwise(results=current.results, axes=current.axes, bodies=(body,), origin=current.origin)
        elif isinstance(current, View):
            # Loops read through the view; only calls and the caller see the view itself.
            dtype = current.results[0].type.dtype
            definitions[current.name] = (current.axes, Load(current.base, current.index, dtype))
        if current.name in inlined and isinstance(current, Pointwise):
            definitions[current.name] = (current.axes, current.bodies[0])
            continue
        operations.append(current)
    return graph.with_operations(tuple(operations))


def _inline_reads(
    operation: Operation, definitions: dict[str, tuple[tuple[Axis, ...], Expr]], graph: LoopGraph
) -> Operation:
    loops = isinstance(operation, Pointwise | Reduction | Scan | Scatter)
    if not loops or not any(name in definitions for name in operation.reads):
        return operation
    axes = axes_of(operation)
    return map_bodies(operation, lambda body: _inline_body(body, axes, definitions, graph))


def _inline_body(
    body: Expr, axes: tuple[Axis, ...], definitions: dict[str, tuple[tuple[Axis, ...], Expr]], graph: LoopGraph
) -> Expr:
    ranges = axis_ranges(axes, graph.symbols)
    def visit(node: Expr) -> Expr:
        if not isinstance(node, Load) or node.buffer not in definitions:
            return node
        own, inner = definitions[node.buffer]
        mapping = {axis.name: term for axis, term in zip(own, node.index, strict=True)}
        return transform(substitute_expr(inner, mapping), lambda e: e, lambda t: simplify(t, ranges))

    return transform(body, visit)
