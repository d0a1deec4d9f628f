"""Where a buffer lives: a device kind and nothing that differs between equal machines."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """A device kind (``"cpu"``, ``"cuda"``) and, where one plan spans several, which of them.

    ``index`` is relative to the plan, not the machine's ordinal: two ranks that run the same graph have equal plans.
    """

    kind: str
    index: int = 0

    def __str__(self) -> str:
        return self.kind if self.index == 0 else f"{self.kind}:{self.index}"

    @staticmethod
    def parse(text: str) -> Device:
        """Read ``cpu`` or ``cuda:1``."""
        kind, _, index = text.partition(":")
        return Device(kind, int(index or 0))


CPU = Device("cpu")
