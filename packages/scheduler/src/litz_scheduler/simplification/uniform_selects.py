"""Arithmetic of selections between two values of a row: computed for each value once a row, and selected after it.

The gradient of a cross-entropy multiplies and rounds elements of a one-hot row, of which there are two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from litz_ir.loops import LoopGraph, Pointwise
from litz_ir.passes import PassContext
from litz_ir.scalar import Const, Expr, Op, cast, transform
from litz_ir.target import DeviceClass
from litz_scheduler.analysis.iteration_space import space_of

_LEAST_ROW = 1024
"""Fewest elements of a row. Thread blocks of shorter ones have several, whose values would be those of elements."""


@dataclass(frozen=True, slots=True)
class UniformSelects:
    """On a GPU, apply operations on a selection and on values of the row to both values that are selected."""

    name: str = "uniform-selects"
    """The name of the pass."""
    ulp: int = 0
    """The bound on changed results, in ULP."""
    devices: ClassVar[DeviceClass] = "gpu"
    """Devices of the graphs that the pass runs over."""

    def apply(self, data: LoopGraph, context: PassContext) -> LoopGraph:
        def rewritten(operation: Pointwise) -> Pointwise:
            machine = context.machine(operation.results[0].type.device)
            outer = space_of(operation).outer
            long = outer and isinstance(outer[-1].size, int) and outer[-1].size >= _LEAST_ROW
            if machine is None or not machine.is_gpu or not long:
                return operation
            axis = outer[-1].name
            bodies = tuple(
                transform(body, lambda node: _selected_last(node, axis)) for body in operation.bodies
            )
            return operation if bodies == operation.bodies else replace(operation, bodies=bodies)

        return data.with_operations(
            tuple(rewritten(each) if isinstance(each, Pointwise) else each for each in data.operations)
        )


def _selected_last(node: Expr, axis: str) -> Expr:
    """Return an operation on a selection between values of the row, which varies along an axis, as a selection."""
    if not isinstance(node, Op) or node.name == "where":
        return node
    varying = [position for position, each in enumerate(node.args) if axis in each.free_symbols]
    if len(varying) != 1:
        return node
    (position,) = varying
    match node.args[position]:
        case Op(name="where", args=(condition, first, second)):
            if axis in first.free_symbols | second.free_symbols:
                return node
            values = (_applied(node, position, value) for value in (first, second))
            return Op("where", (condition, *values), node.dtype)
    return node


def _applied(node: Op, position: int, value: Expr) -> Expr:
    """Return an operation with another operand."""
    if node.name == "cast" and isinstance(value, Const):
        return cast(value, node.dtype)
    return Op(node.name, (*node.args[:position], value, *node.args[position + 1 :]), node.dtype)
