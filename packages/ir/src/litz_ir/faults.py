"""What a kernel may find wrong with the values it is given, as a table: error code, eager's class and words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from litz_ir.errors import IndexOutOfRange, KernelError, ValueRefused


@dataclass(frozen=True, slots=True)
class Fault:
    """``code`` is what a kernel returns, ``error`` the class that is raised then, ``message`` eager's words."""

    name: str
    code: int
    error: type[KernelError]
    message: str
    hint: str = "check the values of the index tensor"


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
)
FAULTS: Mapping[str, Fault] = MappingProxyType({fault.name: fault for fault in _ROWS})
BY_CODE: Mapping[int, Fault] = MappingProxyType({fault.code: fault for fault in _ROWS})


def fault_error(fault: Fault, node: str = "", detail: str = "") -> KernelError:
    """The error of a fault in the kernel or operation ``node``; ``detail`` is what else is known of it."""
    message = f"{fault.message} ({detail})" if detail else fault.message
    return fault.error(message, code=fault.code, node=node, hint=fault.hint)
