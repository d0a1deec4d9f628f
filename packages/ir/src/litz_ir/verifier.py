"""Verifies any level."""

from __future__ import annotations

from litz_ir.fused.group import FusedGraph
from litz_ir.fused.verify import verify_fused
from litz_ir.loops.nodes import LoopGraph
from litz_ir.loops.verify import verify_graph
from litz_ir.plan.kernel import Kernel
from litz_ir.plan.program import Plan
from litz_ir.plan.verify import verify_plan
from litz_ir.plan.verify_kernel import verify_kernel


def verify(data: LoopGraph | FusedGraph | Plan | Kernel) -> None:
    """Check every invariant of a graph, plan or kernel.

    Raises :class:`litz_ir.errors.VerifyError`, which names the check, the operation and the user's line, and
    ``TypeError`` for anything else.
    """
    match data:
        case LoopGraph():
            verify_graph(data)
        case FusedGraph():
            verify_fused(data)
        case Plan():
            verify_plan(data)
        case Kernel():
            verify_kernel(data)
        case _:
            raise TypeError(f"no verifier for {type(data).__name__}")
