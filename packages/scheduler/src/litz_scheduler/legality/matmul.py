"""Products of matrices among reductions: loops that a GPU computes tile by tile, with rules of their own."""

from __future__ import annotations

from collections.abc import Sequence

from litz_ir.contraction import MatmulNest, matmul_nest
from litz_ir.loops import Operation, Pointwise, Reduction, Scatter
from litz_ir.passes import PassContext
from litz_ir.scalar import nested_reductions
from litz_scheduler.fusion_candidate import ScheduledNode


def gpu_kinds(context: PassContext) -> frozenset[str]:
    """The kinds of devices that have processors of their own to share tiles out to."""
    return frozenset(device.kind for device, known in context.capabilities.items() if known.sm_count > 0)


def matmul_of(operation: Operation, kinds: frozenset[str]) -> MatmulNest | None:
    """Return the matmul that a reduction is on a device of one of these kinds; ``None`` for anything else.

    Such a loop reads every element of an operand for many results. It pays to keep it apart: what is computed of its
    result at the same point may follow in its kernel, and what needs the same products at the same points beside it.
    """
    if not isinstance(operation, Reduction) or operation.results[0].type.device.kind not in kinds:
        return None
    return matmul_nest(operation.combiner, operation.bodies, operation.axes, operation.reduce_axes)


def has_nested_reductions(operation: Operation) -> bool:
    """True for loops whose bodies hold sums of their own."""
    match operation:
        case Pointwise() | Reduction():
            return bool(nested_reductions(*operation.bodies))
        case Scatter():
            return bool(nested_reductions(operation.body))
    return False


def shares_nested_reductions(newcomer: ScheduledNode, members: Sequence[ScheduledNode]) -> bool:
    """True for a reduction that holds sums which a member computes at the same points."""
    own = set(nested_reductions(*newcomer.bodies)) if newcomer.reduces else set()
    return any(seen.reduces and own.intersection(nested_reductions(*seen.bodies)) for seen in members)


def is_matmul(operation: Operation, kinds: frozenset[str]) -> bool:
    """True for what :func:`matmul_of` finds a matmul."""
    return matmul_of(operation, kinds) is not None
