"""Scheduler of litz: turns a loop graph into a fused graph and a plan, and explains its decisions. No torch needed.

Names are imported from their modules on first use, so `import litz_scheduler` is cheap. `docs/architecture.md` in
the repository of litz follows a graph through it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from litz_ir.deferred import deferred

if TYPE_CHECKING:
    from litz_scheduler.analysis.cost_model import CostModel, ReductionWork, ThresholdCosts
    from litz_scheduler.build_plan.scheduling import KernelNames, SchedulingContext
    from litz_scheduler.difference import KernelChange, PlanDifference, diff
    from litz_scheduler.explain import PlanReport, explain_plan
    from litz_scheduler.options import Precision, SchedulerOptions, parse_options
    from litz_scheduler.passes import PassList
    from litz_scheduler.pipeline import (
        default_passes,
        fusion_passes,
        graph_passes,
        plan_passes,
        replay_passes,
        schedule,
    )
    from litz_scheduler.timeline import MemoryOwner, MemoryTimeline, memory_timeline

__version__ = "0.2.0"

__all__ = [
    "CostModel",
    "KernelChange",
    "KernelNames",
    "MemoryOwner",
    "MemoryTimeline",
    "PassList",
    "PlanDifference",
    "PlanReport",
    "Precision",
    "ReductionWork",
    "SchedulerOptions",
    "parse_options",
    "SchedulingContext",
    "ThresholdCosts",
    "__version__",
    "default_passes",
    "diff",
    "explain_plan",
    "fusion_passes",
    "graph_passes",
    "memory_timeline",
    "plan_passes",
    "replay_passes",
    "schedule",
]

_MODULES = {
    "CostModel": "litz_scheduler.analysis.cost_model",
    "KernelChange": "litz_scheduler.difference",
    "KernelNames": "litz_scheduler.build_plan.scheduling",
    "MemoryOwner": "litz_scheduler.timeline",
    "MemoryTimeline": "litz_scheduler.timeline",
    "PassList": "litz_scheduler.passes",
    "PlanDifference": "litz_scheduler.difference",
    "PlanReport": "litz_scheduler.explain",
    "Precision": "litz_scheduler.options",
    "ReductionWork": "litz_scheduler.analysis.cost_model",
    "SchedulerOptions": "litz_scheduler.options",
    "parse_options": "litz_scheduler.options",
    "SchedulingContext": "litz_scheduler.build_plan.scheduling",
    "ThresholdCosts": "litz_scheduler.analysis.cost_model",
    "default_passes": "litz_scheduler.pipeline",
    "diff": "litz_scheduler.difference",
    "explain_plan": "litz_scheduler.explain",
    "fusion_passes": "litz_scheduler.pipeline",
    "graph_passes": "litz_scheduler.pipeline",
    "memory_timeline": "litz_scheduler.timeline",
    "plan_passes": "litz_scheduler.pipeline",
    "replay_passes": "litz_scheduler.pipeline",
    "schedule": "litz_scheduler.pipeline",
}

__getattr__, __dir__ = deferred(__name__, _MODULES)
