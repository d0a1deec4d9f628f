"""Execution of plans: memory, the extern table and the executor.

The executor is imported when it is first used: only launchers are needed where another host runs the plans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from litz_ir.deferred import deferred

if TYPE_CHECKING:
    from litz_ir.host.executor import Executor
    from litz_ir.host.externs import ExternTable, numpy_externs
    from litz_ir.host.memory import Memory, NumpyMemory

__all__ = ["Executor", "ExternTable", "Memory", "NumpyMemory", "numpy_externs"]

__getattr__, __dir__ = deferred(
    __name__,
    {
        "Executor": "litz_ir.host.executor",
        **dict.fromkeys(("ExternTable", "numpy_externs"), "litz_ir.host.externs"),
        **dict.fromkeys(("Memory", "NumpyMemory"), "litz_ir.host.memory"),
    },
)
