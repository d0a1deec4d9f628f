"""Execution of plans: memory, the extern table and the executor."""

from litz_ir.host.executor import Executor
from litz_ir.host.memory import Memory

__all__ = ["Executor", "Memory"]
