"""Execution of plans: memory, the extern table and the executor."""

from litz_ir.host.executor import Executor
from litz_ir.host.externs import ExternTable, numpy_externs
from litz_ir.host.memory import Memory, NumpyMemory

__all__ = ["Executor", "ExternTable", "Memory", "NumpyMemory", "numpy_externs"]
