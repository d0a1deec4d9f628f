"""Verification of any level of a program."""

from __future__ import annotations

from functools import singledispatch

from litz_ir.fused.group import FusedGraph
from litz_ir.fused.verify import verify_fused
from litz_ir.loops.nodes import LoopGraph
from litz_ir.loops.verify import verify_graph
from litz_ir.plan.kernel import Kernel
from litz_ir.plan.program import Plan
from litz_ir.plan.verify import verify_plan
from litz_ir.plan.verify_kernel import verify_kernel

__all__ = ["verify"]


@singledispatch
def verify(data: object) -> None:
    """Check every invariant of a graph, plan or kernel, or of data for which a package registers a verifier.

    Raises :class:`litz_ir.errors.VerifyError`, which names the check, the operation and the user's line, and
    ``TypeError`` for other data.
    """
    raise TypeError(f"no verifier for {type(data).__name__}")


verify.register(LoopGraph, verify_graph)
verify.register(FusedGraph, verify_fused)
verify.register(Plan, verify_plan)
verify.register(Kernel, verify_kernel)
