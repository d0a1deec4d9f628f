"""The pass that inlines values into their readers.

Loops always read through views, which costs nothing. A pointwise value is recomputed by its readers when that is
cheaper than a store and loads. It is materialised when a call reads it, when the graph returns it, and when a buffer
that it reads is overwritten before its reader runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from litz_ir.dtypes import i64
from litz_ir.loops import (
    Axis,
    LoopGraph,
    Mutation,
    Operation,
    Pointwise,
    Reduction,
    Scan,
    Scatter,
    View,
    map_bodies,
)
from litz_ir.passes import PassContext
from litz_ir.scalar import (
    Expr,
    Load,
    cast,
    checked,
    const,
    indirects_in,
    logical_and,
    op,
    substitute_expr,
    transform,
    walk,
)
from litz_ir.scalar import index as index_expression
from litz_ir.symbols import Simplifier, Size, symbol
from litz_scheduler.analysis.cost_model import CostModel, ThresholdCosts
from litz_scheduler.analysis.graph_facts import axes_of, axis_ranges, is_identity, named, viewed
from litz_scheduler.realise.choices import InlineDecisions


@dataclass(frozen=True, slots=True)
class Inline:
    """Inline pointwise values and views into the loops that read them.

    Mutations become loops that store in place; views that strides cannot express become loops that copy.
    """

    costs: CostModel = field(default_factory=ThresholdCosts)
    """The model that says what is cheaper to compute again than to store and load."""
    name: str = "inline"
    ulp: int = 0

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        """Return the graph after inlining, with the decisions recorded."""
        graph = data.with_operations(tuple(map(_mutation_as_loop, data.operations)))
        choices = InlineDecisions(graph, self.costs, context)
        choices.decide()
        return _Substitution(graph, choices).run()


def _mutation_as_loop(operation: Operation) -> Operation:
    """Return a mutation as a pointwise loop that replaces its target; other operations as they are."""
    if not isinstance(operation, Mutation):
        return operation
    result = replace(operation.results[0], replaces=operation.target)
    axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(result.type.shape))
    index = tuple(symbol(axis.name) for axis in axes)
    body = Load(operation.source, index, result.type.dtype)
    return Pointwise(
        results=(result,), axes=axes, bodies=(body,), origin=operation.origin, token=operation.token
    )


class _Substitution:
    """Rewriting of the operations in order, so that inlined bodies are final when their readers are rewritten."""

    def __init__(self, graph: LoopGraph, choices: InlineDecisions) -> None:
        self.graph = graph
        self.inlined = choices.inlined
        self.copied = choices.copied
        self.definitions: dict[str, tuple[tuple[Axis, ...], Expr]] = {}
        self.types = {name: value.type for name, value in graph.values().items()}

    def run(self) -> LoopGraph:
        """Return the graph without the inlined operations."""
        operations = [o for operation in self.graph.operations for o in self._visit(operation)]
        return self.graph.with_operations(tuple(operations))

    def _visit(self, operation: Operation) -> tuple[Operation, ...]:
        """Return the operation rewritten, or nothing where it is inlined."""
        current = self._with_inlined_reads(operation)
        if isinstance(current, View):
            body = self._inline(viewed(current, self.types[current.base]), current.axes)
            if current.name in self.copied:
                copy = Pointwise(
                    results=current.results, axes=current.axes, bodies=(body,), origin=current.origin
                )
                return (copy,)
            self.definitions[current.name] = (current.axes, body)
        elif isinstance(current, Pointwise) and current.name in self.inlined:
            self.definitions[current.name] = (current.axes, current.bodies[0])
        return () if current.name in self.inlined else (current,)

    def _with_inlined_reads(self, operation: Operation) -> Operation:
        """Return a loop with the values that it reads inlined into its bodies."""
        loops = isinstance(operation, Pointwise | Reduction | Scan | Scatter)
        if not loops or not any(name in self.definitions for name in operation.reads):
            return operation
        axes = axes_of(operation)
        return map_bodies(operation, lambda body: self._inline(body, axes))

    def _inline(self, body: Expr, axes: tuple[Axis, ...]) -> Expr:
        """Return a body over ``axes`` with its loads of inlined values replaced by their bodies."""
        simplifier = Simplifier(axis_ranges(axes, self.graph.symbols))

        def visit(node: Expr) -> Expr:
            if not isinstance(node, Load) or node.buffer not in self.definitions:
                return node
            own, inner = self.definitions[node.buffer]
            if own == axes and is_identity(node.index, axes):
                return inner
            moved = substitute_expr(inner, named(own, node.index))
            return _with_checks(transform(moved, lambda e: e, simplifier.simplify), node.index)

        return transform(body, visit)


def _with_checks(found: Expr, index: tuple[Size, ...]) -> Expr:
    """Add to an inlined body the bounds checks of ``index`` that its own loads do not make.

    A body does not depend on the index along a broadcast dimension, which is still checked.
    """
    raising = [atom for term in index for atom in indirects_in(term) if atom.check == "raised"]
    if not raising:
        return found
    made = {atom for node in walk(found) for term in node.terms for atom in indirects_in(term)}
    for atom in raising:
        if atom not in made:
            position, size = cast(atom.value, i64), index_expression(atom.size)
            least = op("neg", size) if atom.wrap else const(0, i64)
            inside = logical_and(op("ge", position, least), op("lt", position, size))
            found = checked(inside, found, atom.fault)
    return found
