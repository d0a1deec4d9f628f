"""Facts about a plan's routines and buffers that CUDA graph capture needs."""

from __future__ import annotations

from typing import Any

import torch

from litz_ir.loops import ComplexRef, Ref
from litz_ir.plan import Plan, memory_root, written_buffers

PLAIN = frozenset(
    {
        "matmul", "sort", "copy_with_strides", "convolution_relu", "linear", "convolution", "prepack_convolution",
    }
)  # fmt: skip
"""Litz's own routines that launch the same work in every call and write to none of their arguments."""


def overload(target: str) -> Any:
    """Return the torch operator that a plan calls; ``None`` for a routine that torch does not have."""
    namespace, _, rest = target.partition(".")
    name, _, overload = rest.rpartition(".")
    found = getattr(getattr(getattr(torch.ops, namespace, None), name, None), overload, None)
    return found if isinstance(found, torch._ops.OpOverload) else None


def mutates(target: str) -> bool:
    """Report whether an operator's schema is mutable, or the routine is unknown."""
    found = overload(target)
    return target not in PLAIN if found is None else bool(found._schema.is_mutable)


def overwritten(plan: Plan) -> frozenset[int]:
    """Return the positions of inputs that a plan overwrites, without donated ones."""
    changed = written_buffers(plan, mutates)
    return frozenset(
        k for k, each in enumerate(plan.inputs) if each.name in changed and each.name not in plan.donated
    )


def shared_with_inputs(plan: Plan) -> dict[int, int]:
    """Return, by the position of a result in an input's memory, the position of that input."""
    placements = dict(plan.buffers)
    inputs = {each.name: k for k, each in enumerate(plan.inputs)}
    found = {}
    for k, output in enumerate(plan.outputs):
        if isinstance(output, Ref) and not isinstance(output, ComplexRef):
            position = inputs.get(memory_root(output.name, placements))
            if position is not None:
                found[k] = position
    return found
