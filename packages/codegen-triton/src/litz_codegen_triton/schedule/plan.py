"""The pass that schedules every kernel of a plan for a GPU."""

from __future__ import annotations

from dataclasses import replace

from litz_codegen_triton.schedule.kernel import schedule_kernel
from litz_ir.plan import Plan
from litz_ir.target import Capabilities


def schedule_plan(plan: Plan, capabilities: Capabilities) -> Plan:
    """Replace every tile request of a plan and of its subplans with a complete schedule. Raises ``CodegenError``."""
    kernels = tuple(schedule_kernel(kernel, capabilities) for kernel in plan.kernels)
    subplans = tuple(schedule_plan(each, capabilities) for each in plan.subplans)
    return replace(plan, kernels=kernels, subplans=subplans)
