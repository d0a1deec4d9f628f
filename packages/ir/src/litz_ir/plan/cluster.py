"""Kernels whose outer points several programs have together, each a part of the points of every phase.

A program combines its own points, writes that down in the kernel's scratch, waits for the others of its outer points,
and combines what all of them wrote, in their order. A phase of a single point stores once, whoever runs it. So nothing
but the order of combining differs from a kernel whose outer points have a program each.
"""

from __future__ import annotations

from collections.abc import Sequence

from litz_ir.loops.nodes import UserCombiner
from litz_ir.plan.kernel import Accumulate, Kernel, Parameter, Phase, Statement, Store
from litz_ir.plan.lookback_scan import lookback_words
from litz_ir.plan.schedule import cluster_size, scan_segment
from litz_ir.scalar.expr import Load, indirects_in, loads
from litz_ir.symbols.term import Size, mul, product

WORD_BYTES = 8
"""The bytes of an element of scratch, which holds a component of any accumulation."""


def can_use_cluster(phases: Sequence[Phase]) -> bool:
    """True where every part of an outer point's points can be left to another program.

    The phases are all over the same axes, or over none; they accumulate over these, and store. What a phase of a single
    point stores only such phases read, and what others store is read at the very point that stores it.
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


def state_components(statement: Accumulate) -> int:
    """How many values what has been combined so far is made of, at the most."""
    own = len(statement.combiner.identity) if isinstance(statement.combiner, UserCombiner) else 0
    return max(own, len(statement.results))


def workspace_words(kernel: Kernel) -> Size:
    """The elements that a kernel's scratch has: one for each component of each accumulation, each outer point and each
    program that has a part of it, or what a relay takes; 0 where programs tell one another nothing."""
    if scan_segment(kernel.schedule):
        return lookback_words(kernel)
    cluster = cluster_size(kernel.schedule)
    if cluster == 1:
        return 0
    statements = (each for phase in kernel.phases for each in phase.statements)
    count = sum(state_components(each) for each in statements if isinstance(each, Accumulate))
    return mul(count * cluster, product(axis.size for axis in kernel.outer))


def zeroed_words(kernel: Kernel) -> Size:
    """How many elements of a kernel's scratch, from the first on, have to be zero when a launch begins."""
    return workspace_words(kernel) if scan_segment(kernel.schedule) else 0


def workspace_of(kernel: Kernel) -> Parameter | None:
    """The parameter that is a kernel's scratch."""
    return next((each for each in kernel.parameters if each.access == "workspace"), None)
