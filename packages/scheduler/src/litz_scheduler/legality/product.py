"""Products of matrices among reductions: loops that a GPU computes tile by tile, with rules of their own."""

from __future__ import annotations

from litz_ir.dtypes import f32
from litz_ir.loops.nodes import Kind, Operation, Reduction
from litz_ir.passes.base import PassContext
from litz_ir.scalar.expr import Op


def graphics(context: PassContext) -> frozenset[str]:
    """The kinds of devices that have processors of their own to share tiles out to."""
    return frozenset(device.kind for device, known in context.capabilities.items() if known.processors > 0)


def is_product(operation: Operation, kinds: frozenset[str]) -> bool:
    """True for a sum of products of two factors on a device of one of these kinds, each of which varies along an outer
    axis that the other one does not know.

    Such a loop reads every element of a factor for many results. It pays to keep it apart: what is computed of its
    result at the same point may follow in its kernel, and nothing else may.
    """
    if not isinstance(operation, Reduction) or operation.combiner != Kind("sum"):
        return False
    body = operation.bodies[0]
    if not isinstance(body, Op) or body.name != "mul" or body.dtype != f32:
        return False
    left, right = (factor.free_symbols for factor in body.args)
    wide = {axis.name for axis in operation.axes if axis.size != 1}
    own = wide & (left - right), wide & (right - left)
    return all(own) and operation.results[0].type.device.kind in kinds
