"""Products of matrices among reductions: loops that a GPU computes tile by tile, with rules of their own."""

from __future__ import annotations

from dataclasses import dataclass

from litz_ir.dtypes import f32
from litz_ir.loops.nodes import Axis, Kind, Operation, Reduction
from litz_ir.passes.base import PassContext
from litz_ir.scalar.expr import Op


@dataclass(frozen=True, slots=True)
class Sides:
    """The outer axes of a product, those of one point left out: those that its left factor alone varies along, those of
    the right one, and the others."""

    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    batch: tuple[Axis, ...]


def graphics(context: PassContext) -> frozenset[str]:
    """The kinds of devices that have processors of their own to share tiles out to."""
    return frozenset(device.kind for device, known in context.capabilities.items() if known.processors > 0)


def product_sides(operation: Operation, kinds: frozenset[str]) -> Sides | None:
    """The sides of a sum of products of two factors on a device of one of these kinds, each of which varies along an
    outer axis that the other one does not know; ``None`` for anything else.

    Such a loop reads every element of a factor for many results. It pays to keep it apart: what is computed of its
    result at the same point may follow in its kernel, and nothing else may.
    """
    if not isinstance(operation, Reduction) or operation.combiner != Kind("sum"):
        return None
    body = operation.bodies[0]
    if not isinstance(body, Op) or body.name != "mul" or body.dtype != f32:
        return None
    left, right = (factor.free_symbols for factor in body.args)
    wide = [axis for axis in operation.axes if axis.size != 1]
    rows = tuple(axis for axis in wide if axis.name in left - right)
    columns = tuple(axis for axis in wide if axis.name in right - left)
    if not rows or not columns or operation.results[0].type.device.kind not in kinds:
        return None
    return Sides(rows, columns, tuple(axis for axis in wide if axis not in rows + columns))


def is_product(operation: Operation, kinds: frozenset[str]) -> bool:
    """True for what :func:`product_sides` knows the sides of."""
    return product_sides(operation, kinds) is not None
