"""From a fused graph to a plan: where values live, kernels, and the steps in order."""

from litz_scheduler.build_plan.builder import BuildPlan
from litz_scheduler.build_plan.launches import KernelNames

__all__ = ["BuildPlan", "KernelNames"]
