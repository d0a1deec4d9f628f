"""The type of a pass: a named value that maps data to data, watched by hooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, runtime_checkable

from litz_ir.device import Device
from litz_ir.fused.decision import Decision
from litz_ir.target.capabilities import Capabilities

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)

Hook = Callable[[str, object, object], None]
"""A function called after each pass with the pass's name, its input and its output: it verifies, dumps or checks."""


@dataclass(slots=True)
class Timings:
    """Seconds per pass, in the order run."""

    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


@dataclass(slots=True)
class PassContext:
    """What passes are given: the capabilities of the devices at hand, and a place to record choices.

    ``hooks`` are called after each pass, ``timings`` takes the seconds of each. One context belongs to one compilation;
    it is not shared between threads.
    """

    capabilities: dict[Device, Capabilities]
    decisions: list[Decision] = field(default_factory=list)
    hooks: Sequence[Hook] = ()
    timings: Timings | None = None

    def machine(self, device: Device) -> Capabilities | None:
        """What is known of the machine that a device is, whichever of its kind; ``None`` where nothing is."""
        return next((known for each, known in self.capabilities.items() if each.kind == device.kind), None)

    def decide(self, decision: Decision) -> None:
        """Record a choice."""
        self.decisions.append(decision)


@runtime_checkable
class Pass(Protocol[In, Out]):
    """A step of a compilation, from one form of a program to the same form or the next one.

    ``exact`` passes change no bit of any result; others declare a bound in units of the last place. Each form has a
    verifier (:func:`litz_ir.verifier.verify`), which a hook may run on what a pass gives.
    """

    @property
    def name(self) -> str:
        """What errors, timings and reports call the pass."""

    @property
    def ulp(self) -> int:
        """By how many units of the last place a result may change; 0 for an exact pass."""

    def apply(self, data: In, context: PassContext) -> Out:
        """Data in, data out; the input is not modified."""
