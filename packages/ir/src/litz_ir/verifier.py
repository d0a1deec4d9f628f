"""Verification of any level of a program."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from functools import singledispatch
from typing import TypeVar

from litz_ir.errors import GraphError, VerifyError
from litz_ir.fused.group import FusedGraph
from litz_ir.fused.verify import verify_fused
from litz_ir.loops.nodes import LoopGraph
from litz_ir.loops.verify import verify_graph
from litz_ir.origin import UNKNOWN, Origin
from litz_ir.plan.kernel import Kernel
from litz_ir.plan.program import Plan
from litz_ir.plan.verify.kernel import verify_kernel
from litz_ir.plan.verify.plan import verify_plan
from litz_ir.serial.field_checks import Misfit
from litz_ir.serial.schema import check_fields

__all__ = ["verify"]


@singledispatch
def verify(data: object) -> None:
    """Check every invariant of a graph, plan or kernel, or of data of another package with a method ``verify``.

    Raises :class:`litz_ir.errors.VerifyError`, which names the check, the operation and the user's line, and
    :class:`litz_ir.errors.GraphError` for other data.
    """
    own = None if isinstance(data, type) else getattr(data, "verify", None)
    if callable(own):
        own()
        return
    raise GraphError(
        f"no verifier for {type(data).__name__}",
        hint="verify takes a LoopGraph, FusedGraph, Plan or Kernel, or data with a method verify()",
    )


Data = TypeVar("Data", LoopGraph, FusedGraph, Plan, Kernel)


def _register(cls: type[Data], verifier: Callable[[Data], None]) -> None:
    """Register the verifier of a class, which runs after the check that every field has its type."""

    def check(data: Data) -> None:
        try:
            check_fields(data)
        except Misfit as misfit:
            raise _wrong_field(data, misfit) from None
        verifier(data)

    verify.register(cls, check)


def _wrong_field(data: LoopGraph | FusedGraph | Plan | Kernel, misfit: Misfit) -> VerifyError:
    """Return the error of a field of the wrong type, with the operation that it belongs to."""
    node, origin = "", UNKNOWN
    graph = data.graph if isinstance(data, FusedGraph) else data
    found = re.match(r"(?:\.graph)?\.operations\[(\d+)\]", misfit.path)
    if found and isinstance(graph, LoopGraph):
        operation = graph.operations[int(found[1])]
        with suppress(AttributeError, TypeError):  # the operation's own name or origin may be what is wrong
            node, origin = str(operation.name), operation.origin
    return VerifyError(
        f"{type(data).__name__.lower()}{misfit.path}: {misfit}",
        check="field-type",
        stage=_STAGES[type(data)],
        node=node,
        origin=origin if isinstance(origin, Origin) else UNKNOWN,
        hint=f"give {misfit.path.rpartition('.')[2] or 'it'} a value of that type",
    )


_STAGES: dict[type, str] = {
    LoopGraph: "loop graph",
    FusedGraph: "fused graph",
    Plan: "plan",
    Kernel: "kernel",
}
"""The stage that errors name, by the class of what is verified."""

_register(LoopGraph, verify_graph)
_register(FusedGraph, verify_fused)
_register(Plan, verify_plan)
_register(Kernel, verify_kernel)
