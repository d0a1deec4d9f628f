"""From a fused graph to a plan: where values live, kernels, and the steps in order."""

from litz_scheduler.build_plan.builder import build_plan
from litz_scheduler.build_plan.launches import KernelNames

__all__ = ["KernelNames", "build_plan"]
