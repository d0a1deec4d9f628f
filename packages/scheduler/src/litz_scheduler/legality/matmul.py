"""Matmuls among reductions, which a GPU computes in tiles and which have fusion rules of their own."""

from __future__ import annotations

from collections.abc import Sequence

from litz_ir.contraction import MatmulNest, is_tiled_sum, matmul_nest
from litz_ir.loops import Operation, Pointwise, Reduction, Scatter
from litz_ir.passes import PassContext
from litz_ir.scalar import nested_reductions
from litz_ir.target import Capabilities
from litz_scheduler.analysis.fusion_candidate import ScheduledNode


def gpu_kinds(context: PassContext) -> frozenset[str]:
    """Return the kinds of devices that have SMs, over which a kernel's tiles are distributed."""
    return frozenset(device.kind for device, known in context.capabilities.items() if known.is_gpu)


def matmul_of(operation: Operation, kinds: frozenset[str]) -> MatmulNest | None:
    """Return the matmul that a reduction is on a device of one of these kinds; ``None`` for others.

    A matmul reads every element of an operand for many results, so that it is fused with few operations: an epilogue
    at the same point, and reductions with the same nested reductions at the same points.
    """
    if not isinstance(operation, Reduction) or operation.results[0].type.device.kind not in kinds:
        return None
    return matmul_nest(operation.combiner, operation.bodies, operation.axes, operation.reduce_axes)


def has_nested_reductions(operation: Operation) -> bool:
    """Return True for loops whose bodies contain nested reductions."""
    match operation:
        case Pointwise() | Reduction():
            return bool(nested_reductions(*operation.bodies))
        case Scatter():
            return bool(nested_reductions(operation.body))
    return False


def shares_nested_reductions(new_node: ScheduledNode, members: Sequence[ScheduledNode]) -> bool:
    """Return True for a reduction whose nested reductions a member computes at the same points."""
    own = set(nested_reductions(*new_node.bodies)) if new_node.reduces else set()
    return any(node.reduces and own.intersection(nested_reductions(*node.bodies)) for node in members)


def is_matmul(operation: Operation, kinds: frozenset[str]) -> bool:
    """Return True where :func:`matmul_of` finds a matmul."""
    return matmul_of(operation, kinds) is not None


def is_tiled_convolution(operation: Operation, machine: Capabilities) -> bool:
    """Return True for a convolution over prepacked weights, which the kernels of a machine compute in tiles."""
    if not isinstance(operation, Reduction) or not machine.panel_columns:
        return False
    return is_tiled_sum(operation.combiner, operation.bodies, machine.panel_columns)
