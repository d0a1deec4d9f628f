"""Sums of rows of which one element alone is not zero: that element.

The gradient of a cross-entropy sums a one-hot row times a number. The sum needs no loop over the classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from litz_ir.dtypes import b1
from litz_ir.fused import Decision
from litz_ir.loops import LoopGraph, NamedCombiner, Operation, Pointwise, Reduction
from litz_ir.passes import PassContext
from litz_ir.scalar import (
    Const,
    Expr,
    Index,
    Indirect,
    Load,
    Op,
    const,
    indirects_in,
    substitute_expr,
    transform,
    walk,
)
from litz_ir.symbols import Size, free_symbols, symbol
from litz_scheduler import reasons
from litz_scheduler.analysis.graph_facts import readers_by_value

_SUM = NamedCombiner("sum")

_MAX_STATEMENTS = 32
"""Most operations of a summand whose producers are looked into."""


@dataclass(frozen=True, slots=True)
class OneHotSums:
    """Replace sums over one axis, of which one index alone is selected, by the selected element.

    Zero times a number counts as zero, as in eager's kernel for the gradient of a cross-entropy, also where the number
    is not finite.
    """

    name: str = "one-hot-sums"
    """The name of the pass."""
    ulp: int = 0
    """The bound on changed results, in ULP."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        if not _may_select(data):
            return data
        finder = _Finder(data)
        operations: list[Operation] = []
        for operation in data.operations:
            found = finder.element(operation) if isinstance(operation, Reduction) else None
            if found is None:
                operations.append(operation)
                continue
            assert isinstance(operation, Reduction), "elements are found of reductions"
            context.decide(Decision("realise", operation.name, "select", reasons.SELECT_ONE_HOT))
            operations.append(
                Pointwise(
                    results=operation.results, axes=operation.axes, bodies=(found,), origin=operation.origin
                )
            )
        return data.with_operations(tuple(operations))


class _Finder:
    """Finds the elements that sums select."""

    def __init__(self, graph: LoopGraph) -> None:
        self._producers = {
            each.name: each
            for each in graph.operations
            if isinstance(each, Pointwise) and len(each.results) == 1
        }
        self._readers = readers_by_value(graph)

    def element(self, reduction: Reduction) -> Expr | None:
        """Return the one summand that is not zero; ``None`` where that is not known."""
        proper = [axis for axis in reduction.reduce_axes if axis.size != 1]
        if reduction.combiner != _SUM or len(proper) != 1 or reduction.token:
            return None
        (axis,) = proper
        at: dict[str, Size] = {each.name: 0 for each in reduction.reduce_axes if each is not axis}
        body = self._expanded(substitute_expr(reduction.bodies[0], at), axis.name)
        selection = None if body is None else _selection(body, axis.name, axis.size)
        if body is None or selection is None or not self._is_checked_elsewhere(reduction, body):
            return None
        missed, hit = (_simplified(body, selection, holds) for holds in (False, True))
        zero = isinstance(missed, Const) and missed.value == 0
        return hit if zero and axis.name not in hit.free_symbols else None

    def _expanded(self, body: Expr, axis: str) -> Expr | None:
        """Return a summand with the producers of values that vary along the axis; ``None`` where it gets too long."""
        while True:
            varying = [
                node
                for node in walk(body)
                if isinstance(node, Load) and axis in node.free_symbols and node.buffer in self._producers
            ]
            if sum(isinstance(node, Op) for node in walk(body)) > _MAX_STATEMENTS:
                return None
            if not varying:
                return body
            body = transform(body, partial(_replaced, {node: self._produced(node) for node in varying}))

    def _produced(self, load: Load) -> Expr:
        """Return the body of the producer of a loaded element, at that element."""
        producer = self._producers[load.buffer]
        at: Mapping[str, Size] = {
            axis.name: term for axis, term in zip(producer.axes, load.index, strict=True)
        }
        return substitute_expr(producer.bodies[0], at)

    def _is_checked_elsewhere(self, reduction: Reduction, body: Expr) -> bool:
        """Return whether indices that are reported if they are out of range are also checked by other readers."""
        raised = any(
            atom.check == "raised"
            for node in walk(body)
            for term in node.terms
            for atom in indirects_in(term)
        )
        return not raised or all(len(self._readers[name]) > 1 for name in reduction.reads)


def _replaced(bodies: Mapping[Expr, Expr], node: Expr) -> Expr:
    """Return the body in place of a node, or the node itself."""
    return bodies.get(node, node)


def _may_select(graph: LoopGraph) -> bool:
    """Return whether a graph has both parts of a selection, perhaps in two operations: a comparison of integers, and
    an index that is loaded as a value."""
    compares = loads_index = False
    for operation in graph.operations:
        if isinstance(operation, Pointwise | Reduction):
            for node in walk(*operation.bodies):
                match node:
                    case Op(name="eq", args=(first, _)):
                        compares |= first.dtype.is_integer
                    case Index(term=Indirect()):
                        loads_index = True
    return compares and loads_index


def _selection(body: Expr, axis: str, size: Size) -> Expr | None:
    """Return the comparison of an axis with an index in its range, if a body has one."""
    for node in walk(body):
        match node:
            case Op(name="eq", args=(Index(term=first), Index(term=second))):
                index = second if first == symbol(axis) else first if second == symbol(axis) else None
                if isinstance(index, Indirect) and index.size == size and axis not in free_symbols(index):
                    return node
    return None


def _simplified(body: Expr, selection: Expr, holds: bool) -> Expr:
    """Return a body where a comparison holds, or does not, with selections and multiplications by zero computed."""

    def visit(node: Expr) -> Expr:
        if node == selection:
            return const(holds, b1)
        match node:
            case Op(name="where", args=(Const() as known, chosen, other)):
                return chosen if known.value else other
            case Op(name="cast", args=(Const(value=0),)) if node.dtype.is_float:
                return const(0.0, node.dtype)
            case Op(name="mul", args=args) if any(isinstance(arg, Const) and arg.value == 0 for arg in args):
                return const(0, node.dtype) if node.dtype.is_integer else const(0.0, node.dtype)
            case Op(name="neg", args=(Const(value=0) as zero,)):
                return zero
        return node

    return transform(body, visit)
