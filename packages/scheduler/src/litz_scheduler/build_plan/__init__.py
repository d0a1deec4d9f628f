"""Passes from a fused graph to a plan: kernels, launches, their order and their memory."""

from litz_scheduler.build_plan.foreach import FuseLaunches
from litz_scheduler.build_plan.forms import UnnamedSteps, UnplacedPlan
from litz_scheduler.build_plan.kernel_names import NameKernels
from litz_scheduler.build_plan.memory_planning import PlanMemory
from litz_scheduler.build_plan.ordering import OrderSteps
from litz_scheduler.build_plan.scheduling import KernelNames, PlanNames, SchedulingContext
from litz_scheduler.build_plan.steps import BuildSteps

__all__ = [
    "BuildSteps", "FuseLaunches", "KernelNames", "NameKernels", "OrderSteps", "PlanMemory", "PlanNames",
    "SchedulingContext", "UnnamedSteps", "UnplacedPlan",
]  # fmt: skip
