"""GPU scheduling: passes that replace each kernel's tile request with a form, tile sizes, warps and stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litz_ir.deferred import deferred

if TYPE_CHECKING:
    from litz_codegen_triton.schedule.plan import schedule_plan

__all__ = ["schedule_plan"]

__getattr__, __dir__ = deferred(__name__, {"schedule_plan": "litz_codegen_triton.schedule.plan"})
