"""Devices of buffers, without anything that differs between equal machines."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Device", "CPU"]


@dataclass(frozen=True, slots=True)
class Device:
    """A device kind (``"cpu"``, ``"cuda"``) and, in a plan over several devices, the number of one."""

    kind: str
    """Kind of device, as torch names it."""
    index: int = 0
    """Number within the plan, not the machine's ordinal: two ranks that run the same graph have equal plans."""

    def __str__(self) -> str:
        return self.kind if self.index == 0 else f"{self.kind}:{self.index}"

    @staticmethod
    def parse(text: str) -> Device:
        """Parse ``cpu`` or ``cuda:1``."""
        kind, _, index = text.partition(":")
        return Device(kind, int(index or 0))


CPU = Device("cpu")
"""The CPU."""

STORAGE_ALIGNMENT = 64
"""Bytes that start and size of every storage are multiples of, on every device: a CPU's cache line and AVX-512
register, and more than a GPU's widest access."""
