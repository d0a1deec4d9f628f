"""What a plan says about recording it: whether its launches are the same in every call, and what it overwrites."""

from __future__ import annotations

from typing import Any

import torch

from litz_ir.loops.nodes import ComplexRef, OpaqueInput, Ref, ScalarInput
from litz_ir.plan.program import CallStep, Check, Plan, RegionStep
from litz_ir.plan.uses import root, touched_by, written

SEEDED = "scaled_dot_product"
"""Operators that hand on the state of a generator: on the CPU as a rule, on the GPU while they are recorded."""

PLAIN = frozenset({"matmul", "sort", "copy_with_strides", "strided", "strided_scatter"})
"""Routines of litz's own that launch the same in every call, and write to nothing that they are given."""

_UNSAFE = "cudagraph_unsafe"
"""The tag of operators that look at values, or wait for the device."""


def obstacle(plan: Plan) -> str:
    """Why the calls of a plan cannot be recorded; empty where they can."""
    if plan.device.kind != "cuda":
        return "it does not run on a GPU"
    if list(plan.symbols):
        return "its sizes are not fixed"
    for item in plan.inputs:
        if isinstance(item, ScalarInput | OpaqueInput):
            return f"{item.name} is no tensor"
    elsewhere = {name for name, placement in plan.buffers if placement.type.device.kind != plan.device.kind}
    for step in plan.steps:
        away = next((name for name in touched_by(step) if name in elsewhere), None)
        if away is not None and not (isinstance(step, CallStep) and SEEDED in step.target):
            return f"{away} is not on the GPU"
        match step:
            case Check():
                return "it checks values"
            case RegionStep():
                return f"control flow ({step.kind}) reads values"
            case CallStep() if _is_unsafe(step.target):
                return f"{step.target} cannot be recorded"
    if not all(isinstance(output, Ref | None) for output in plan.outputs):
        return "it returns numbers"
    return ""


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


def overwritten(plan: Plan) -> frozenset[int]:
    """The positions of the inputs that the plan writes to and somebody reads afterwards."""
    changed = written(plan, _mutates)
    return frozenset(
        k for k, each in enumerate(plan.inputs) if each.name in changed and each.name not in plan.donated
    )


def _mutates(target: str) -> bool:
    found = _overload(target)
    return target not in PLAIN if found is None else bool(found._schema.is_mutable)


def shared_with_inputs(plan: Plan) -> dict[int, int]:
    """By the position of a result that lies in an input's memory, that input's position."""
    placements = dict(plan.buffers)
    inputs = {each.name: k for k, each in enumerate(plan.inputs)}
    found = {}
    for k, output in enumerate(plan.outputs):
        if isinstance(output, Ref) and not isinstance(output, ComplexRef):
            home = inputs.get(root(output.name, placements))
            if home is not None:
                found[k] = home
    return found
