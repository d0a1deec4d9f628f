"""The protocol of passes, and the context in which they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, runtime_checkable

from litz_ir.device import Device
from litz_ir.fused.decision import Decision
from litz_ir.passes.fuel import Fuel, FuelKind
from litz_ir.target.capabilities import Capabilities

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)

Hook = Callable[[str, object, object], None]
"""A function called after each pass with the pass's name, its input and its output, such as a verifier or a dump."""


@dataclass(slots=True)
class Timings:
    """Seconds of each pass, in order of execution."""

    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds by name of the pass, in order of execution."""

    def add(self, name: str, seconds: float) -> None:
        """Add the seconds of a run of the pass called ``name``."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


@dataclass(slots=True)
class PassContext:
    """Data that passes get: capabilities of the devices, and a list for decisions.

    A context belongs to one compilation; it is not shared between threads.
    """

    capabilities: dict[Device, Capabilities]
    """Capabilities of each device."""
    decisions: list[Decision] = field(default_factory=list)
    """Decisions recorded so far."""
    hooks: Sequence[Hook] = ()
    """Functions called after each pass."""
    timings: Timings | None = None
    """Collects the seconds of each pass, if given."""
    fuel: Fuel | None = None
    """Limits the transformations that passes make, if given."""

    def machine(self, device: Device) -> Capabilities | None:
        """The capabilities of any device of the same kind; ``None`` if unknown."""
        return next((known for each, known in self.capabilities.items() if each.kind == device.kind), None)

    def allows(self, kind: FuelKind, subject: str) -> bool:
        """Return False where the fuel for a transformation of this kind is spent; else count the transformation."""
        return self.fuel is None or self.fuel.spend(kind, subject)

    def decide(self, decision: Decision) -> None:
        """Record a decision."""
        self.decisions.append(decision)


@runtime_checkable
class Pass(Protocol[In, Out]):
    """A step of a compilation, from data of one level to the same or the next level.

    Each level has a verifier (:func:`litz_ir.verifier.verify`), which a hook may run on the output.
    """

    @property
    def name(self) -> str:
        """Name of the pass in errors, timings and reports."""

    @property
    def ulp(self) -> int:
        """Bound by which results may change, in units in the last place; 0 for an exact pass, which changes no bit."""

    def apply(self, data: In, context: PassContext) -> Out:
        """The transformed data; the input is not modified."""
