"""Host time of launches and calls against that of a CUDA graph replay, which must be less for a capture to pay."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from litz_ir.plan import CallStep, Launch, RegionStep, Step

LAUNCH = 4e-6
"""Seconds of host time for a kernel launch by litz, measured on the host of an H200."""

CALL = 10e-6
"""Seconds of host time for a library call, from Python to its launch, measured likewise."""

REPLAY = 22e-6
"""Seconds of host time for a replay: to check the addresses of arguments and the use of results, and to launch the
graph."""


@dataclass(frozen=True, slots=True)
class Work:
    """A number of launches and library calls."""

    launches: int
    """Kernel launches."""
    calls: int
    """Library calls, higher-order operators included."""

    @property
    def steps(self) -> int:
        """The number of launches and calls."""
        return self.launches + self.calls

    @property
    def seconds(self) -> float:
        """Their estimated host time in seconds."""
        return self.launches * LAUNCH + self.calls * CALL

    def pays(self, replay: float) -> bool:
        """Return True where they take at least the ``replay`` seconds of a replay."""
        return self.seconds >= replay

    def reason(self, replay: float) -> str:
        """Return the reason that they are not captured."""
        named = ((self.launches, "launch", "launches"), (self.calls, "call", "calls"))
        counted = " and ".join(f"{n} {one if n == 1 else many}" for n, one, many in named if n) or "nothing"
        verb = "takes" if self.steps <= 1 else "take"
        estimate = f"{self.seconds * 1e6:.0f} us, not {replay * 1e6:.0f}"
        return f"{counted} {verb} less host time than a replay ({estimate})"


def work_of(steps: Iterable[Step]) -> Work:
    """Count the launches and calls among steps; a higher-order operator is a call."""
    known = list(steps)
    calls = sum(isinstance(step, CallStep | RegionStep) for step in known)
    return Work(sum(isinstance(step, Launch) for step in known), calls)
