"""A pass: a named value with one ``apply`` from data to data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, TypeVar, runtime_checkable

from litz_ir.device import Device
from litz_ir.fused.decision import Decision
from litz_ir.target.capabilities import Capabilities

T = TypeVar("T")


@dataclass(slots=True)
class PassContext:
    """What passes are given: the capabilities of the devices at hand, and a place to record choices.

    One context belongs to one compilation; it is not shared between threads.
    """

    capabilities: dict[Device, Capabilities]
    decisions: list[Decision] = field(default_factory=list)

    def machine(self, device: Device) -> Capabilities | None:
        """What is known of the machine that a device is, whichever of its kind; ``None`` where nothing is."""
        return next((known for each, known in self.capabilities.items() if each.kind == device.kind), None)

    def decide(self, decision: Decision) -> None:
        """Record a choice."""
        self.decisions.append(decision)


@runtime_checkable
class Pass(Protocol[T]):
    """``exact`` passes change no bit of any result; others declare a bound in units of the last place."""

    @property
    def name(self) -> str:
        """What errors, timings and reports call the pass."""

    @property
    def ulp(self) -> int:
        """By how many units of the last place a result may change; 0 for an exact pass."""

    def apply(self, data: T, context: PassContext) -> T:
        """Data in, data out; the input is not modified."""
