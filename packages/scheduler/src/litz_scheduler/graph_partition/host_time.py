"""What launches and calls take of the host, and what a replay of them does: a recording pays where it saves more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from litz_ir.plan import CallStep, Launch, RegionStep, Step

LAUNCH = 4e-6
"""Seconds of the host for a launch of a kernel of litz's, measured beside an H200."""

CALL = 10e-6
"""The same for a library call, from Python to its launch."""

REPLAY = 22e-6
"""The same for a replay: to look where arguments lie and who holds results, and to launch the graph."""


@dataclass(frozen=True, slots=True)
class Work:
    """So many launches and library calls."""

    launches: int
    calls: int

    @property
    def steps(self) -> int:
        """How many there are of both."""
        return self.launches + self.calls

    @property
    def seconds(self) -> float:
        """What they take of the host, as estimated."""
        return self.launches * LAUNCH + self.calls * CALL

    def pays(self, replay: float) -> bool:
        """True where they take no less than the ``replay`` seconds of a replay."""
        return self.seconds >= replay

    def says(self, replay: float) -> str:
        """Why they are not recorded."""
        named = ((self.launches, "launch", "launches"), (self.calls, "call", "calls"))
        told = " and ".join(f"{n} {one if n == 1 else many}" for n, one, many in named if n) or "nothing"
        verb = "takes" if self.steps <= 1 else "take"
        estimate = f"{self.seconds * 1e6:.0f} us, not {replay * 1e6:.0f}"
        return f"{told} {verb} less host time than a replay ({estimate})"


def work_of(steps: Iterable[Step]) -> Work:
    """The launches and calls among some steps; control flow counts as a call."""
    known = list(steps)
    calls = sum(isinstance(step, CallStep | RegionStep) for step in known)
    return Work(sum(isinstance(step, Launch) for step in known), calls)
