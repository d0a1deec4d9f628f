"""Kernels whose outer points several thread blocks (CTAs) share, each with some of the points of every phase.

A thread block combines its own points, writes the partial result to the kernel's workspace, waits at a barrier
for the other blocks of its outer points, and combines the partial results of all in block order. A phase
without axes stores once, whichever block runs it. Only the order of combination differs from a kernel with one
thread block for each outer point.
"""

from __future__ import annotations

from collections.abc import Sequence

from litz_ir.plan.kernel import Accumulate, Kernel, Parameter, Phase, Statement, Store
from litz_ir.plan.lookback_scan import lookback_words
from litz_ir.plan.schedule import cluster_size, scan_segment
from litz_ir.scalar.expr import Load, indirects_in, loads
from litz_ir.symbols.polynomials import mul, product
from litz_ir.symbols.term import Size

WORD_BYTES = 8
"""Bytes of a workspace element, which holds one component of any accumulation."""


def can_use_cluster(phases: Sequence[Phase]) -> bool:
    """True if the points of each outer point can be divided among thread blocks.

    All phases that have axes have the same ones; they accumulate over these axes, or store. A value stored by a
    phase without axes is read by such phases alone; any other stored value is read only at the point that
    stores it.
    """
    nests = {phase.axes for phase in phases if phase.axes}
    statements = [(bool(phase.axes), each) for phase in phases for each in phase.statements]
    if len(nests) != 1 or not any(isinstance(each, Accumulate) for _, each in statements):
        return False
    stored: dict[str, tuple[bool, Size]] = {}
    for inner, each in statements:
        match each:
            case Store(mode="set"):
                if stored.setdefault(each.buffer, (inner, each.offset)) != (inner, each.offset):
                    return False
            case Accumulate() if inner:
                pass
            case _:
                return False
    return all(
        stored[load.buffer] == (inner, load.index[0] if inner else stored[load.buffer][1])
        for inner, each in statements
        for load in _loads(each)
        if load.buffer in stored
    )


def _loads(statement: Statement) -> tuple[Load, ...]:
    match statement:
        case Store():
            return loads(statement.value, *(atom.value for atom in indirects_in(statement.offset)))
        case _:
            return loads(*statement.values)


def _state_components(statement: Accumulate) -> int:
    """Number of components of the running state of an accumulation; an upper bound."""
    return max(statement.combiner.components, len(statement.results))


def workspace_words(kernel: Kernel) -> Size:
    """Elements of a kernel's workspace, 0 for a kernel whose thread blocks do not communicate.

    A cluster needs one for each component of each accumulation, outer point and thread block of the cluster; a
    look-back scan needs :func:`~litz_ir.plan.lookback_scan.lookback_words`.
    """
    if scan_segment(kernel.schedule):
        return lookback_words(kernel)
    cluster = cluster_size(kernel.schedule)
    if cluster == 1:
        return 0
    statements = (each for phase in kernel.phases for each in phase.statements)
    count = sum(_state_components(each) for each in statements if isinstance(each, Accumulate))
    return mul(count * cluster, product(axis.size for axis in kernel.outer))


def zeroed_words(kernel: Kernel) -> Size:
    """Leading elements of a kernel's workspace that must be zero when a launch begins."""
    return workspace_words(kernel) if scan_segment(kernel.schedule) else 0


def workspace_of(kernel: Kernel) -> Parameter | None:
    """The workspace parameter of a kernel, if it has one."""
    return next((each for each in kernel.parameters if each.access == "workspace"), None)
