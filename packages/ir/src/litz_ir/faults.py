"""Faults that a kernel may find in the values of its inputs: error code, eager's exception class and message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from litz_ir.errors import IndexOutOfRange, KernelError, ValueRefused

__all__ = ["Fault", "FAULTS", "BY_CODE", "fault_error"]


@dataclass(frozen=True, slots=True)
class Fault:
    """A row of the table of faults."""

    name: str
    """Name by which expressions refer to the fault."""
    code: int
    """Error code that a kernel returns."""
    error: type[KernelError]
    """Exception class that is raised for the code."""
    message: str
    """Eager's message."""
    hint: str = "check the values of the index tensor"
    """Next step for the user."""


_ROWS = (
    Fault("index", 1, IndexOutOfRange, "index out of range in self"),
    Fault("element", 3, ValueRefused, "index is out of bounds for its dimension"),
    Fault("target", 4, IndexOutOfRange, "Target is out of bounds."),
    Fault(
        "zero_division", 5, ValueRefused, "ZeroDivisionError", "check the divisors of the integer division"
    ),
    Fault("unpool", 7, ValueRefused, "Found an invalid max index"),
    Fault(
        "unit_interval", 6, ValueRefused, "all elements of input should be between 0 and 1", "check the input"
    ),
    Fault(
        "target_interval",
        8,
        ValueRefused,
        "all elements of target should be between 0 and 1",
        "check the target",
    ),
)
FAULTS: Mapping[str, Fault] = MappingProxyType({fault.name: fault for fault in _ROWS})
"""The rows by name."""
BY_CODE: Mapping[int, Fault] = MappingProxyType({fault.code: fault for fault in _ROWS})
"""The rows by error code."""


def fault_error(fault: Fault, node: str = "", detail: str = "") -> KernelError:
    """The error of a fault in the kernel or operation ``node``; ``detail`` is added to the message."""
    message = f"{fault.message} ({detail})" if detail else fault.message
    return fault.error(message, code=fault.code, node=node, hint=fault.hint)
