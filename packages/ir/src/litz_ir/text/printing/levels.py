"""Printer of any level."""

from __future__ import annotations

from litz_ir.fused.group import FusedGraph
from litz_ir.loops.nodes import LoopGraph
from litz_ir.plan.kernel import Kernel
from litz_ir.plan.program import Plan
from litz_ir.text.printing.fused import print_fused
from litz_ir.text.printing.kernel import print_kernel
from litz_ir.text.printing.loops import print_graph
from litz_ir.text.printing.plan import print_plan


def to_text(data: LoopGraph | FusedGraph | Plan | Kernel) -> str:
    """The text form, which :func:`litz_ir.text.from_text` parses; raises ``TypeError`` for other data."""
    match data:
        case LoopGraph():
            return print_graph(data)
        case FusedGraph():
            return print_fused(data)
        case Plan():
            return print_plan(data)
        case Kernel():
            return print_kernel(data)
    raise TypeError(f"no text form for {type(data).__name__}")
