"""litz-scheduler: from the loop graph through the fused graph to a plan, every choice explained. Imports no torch."""

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
