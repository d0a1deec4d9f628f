"""What torch says of the routines of a plan that is captured as a CUDA graph, and what the plan overwrites."""

from __future__ import annotations

from typing import Any

import torch

from litz_ir.loops import ComplexRef, Ref
from litz_ir.plan import Plan, memory_root, written_buffers
from litz_scheduler.graph_partition import Routines

PLAIN = frozenset({"matmul", "sort", "copy_with_strides"})
"""Routines of litz's own that launch the same in every call, and write to nothing that they are given."""

_UNSAFE = "cudagraph_unsafe"
"""The tag of operators that look at values, or wait for the device."""


def _overload(target: str) -> Any:
    """The operator of torch's that a plan calls; ``None`` for a routine that torch does not know."""
    namespace, _, rest = target.partition(".")
    name, _, overload = rest.rpartition(".")
    found = getattr(getattr(getattr(torch.ops, namespace, None), name, None), overload, None)
    return found if isinstance(found, torch._ops.OpOverload) else None


def _is_unsafe(target: str) -> bool:
    """True for an operator with the tag, and for a routine that neither torch nor litz knows."""
    found = _overload(target)
    if found is None:
        return target not in PLAIN
    return getattr(torch.Tag, _UNSAFE, None) in found.tags


def mutates(target: str) -> bool:
    """True for an operator that says that it writes to what it is given, and for a routine that is not known."""
    found = _overload(target)
    return target not in PLAIN if found is None else bool(found._schema.is_mutable)


ROUTINES = Routines(_is_unsafe, mutates)
"""What torch and litz know of the routines that plans call."""


def overwritten(plan: Plan) -> frozenset[int]:
    """The positions of the inputs that the plan writes to and somebody reads afterwards."""
    changed = written_buffers(plan, mutates)
    return frozenset(
        k for k, each in enumerate(plan.inputs) if each.name in changed and each.name not in plan.donated
    )


def shared_with_inputs(plan: Plan) -> dict[int, int]:
    """By the position of a result that lies in an input's memory, that input's position."""
    placements = dict(plan.buffers)
    inputs = {each.name: k for k, each in enumerate(plan.inputs)}
    found = {}
    for k, output in enumerate(plan.outputs):
        if isinstance(output, Ref) and not isinstance(output, ComplexRef):
            home = inputs.get(memory_root(output.name, placements))
            if home is not None:
                found[k] = home
    return found
