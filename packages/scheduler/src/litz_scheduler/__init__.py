"""Scheduler of litz: turns a loop graph into a fused graph and a plan, and explains its decisions. No torch needed."""

from litz_scheduler.explain import PlanReport, explain_plan
from litz_scheduler.options import Precision, SchedulerOptions
from litz_scheduler.pipeline import fusion_passes, graph_passes, plan_passes, replay_passes, schedule

__version__ = "0.1.0"

__all__ = [
    "PlanReport",
    "Precision",
    "SchedulerOptions",
    "__version__",
    "explain_plan",
    "fusion_passes",
    "graph_passes",
    "plan_passes",
    "replay_passes",
    "schedule",
]
