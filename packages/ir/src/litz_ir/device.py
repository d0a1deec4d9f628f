"""Devices of buffers, without anything that differs between equal machines."""

from __future__ import annotations

from dataclasses import dataclass

from litz_ir.errors import GraphError

__all__ = ["Device", "CPU"]


@dataclass(frozen=True, slots=True)
class Device:
    """A device kind (``"cpu"``, ``"cuda"``) and, in a plan over several devices, the number of one."""

    kind: str
    """Kind of device, as torch names it."""
    index: int = 0
    """Number within the plan, not the machine's ordinal: two ranks that run the same graph have equal plans."""

    def __post_init__(self) -> None:
        if type(self.kind) is not str or not self.kind:
            raise GraphError(
                f"the kind of a device is {self.kind!r:.80}, but a name such as cpu or cuda belongs there",
                hint='give Device("cpu"), or Device("cuda", 1) for the second GPU of a plan',
            )
        if type(self.index) is not int or self.index < 0:
            raise GraphError(
                f"the number of a device is {self.index!r:.80}, but an int of at least 0 belongs there",
                hint='give Device("cpu"), or Device("cuda", 1) for the second GPU of a plan',
            )

    def __str__(self) -> str:
        return self.kind if self.index == 0 else f"{self.kind}:{self.index}"

    @staticmethod
    def parse(text: str) -> Device:
        """Parse ``cpu`` or ``cuda:1``; raises :class:`GraphError` for other text."""
        kind, colon, index = text.partition(":")
        if colon and not (index.isascii() and index.isdigit()):
            raise GraphError(f"{text!r:.80} is no device", hint="give a kind such as cpu, or cuda:1")
        return Device(kind, int(index or 0))


CPU = Device("cpu")
"""The CPU."""

STORAGE_ALIGNMENT = 64
"""Bytes that start and size of every storage are multiples of, on every device: a CPU's cache line and AVX-512
register, and more than a GPU's widest access."""
