"""GPU scheduling: passes that replace each kernel's tile request with a form, tile sizes, warps and stages."""

from litz_codegen_triton.schedule.plan import schedule_plan

__all__ = ["schedule_plan"]
