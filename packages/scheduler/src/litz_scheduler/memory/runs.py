"""Runs of kernels: launches that follow one another on one device are one native call, so memory comes before and goes
after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from litz_ir.device import Device
from litz_ir.plan import Launch, Placement, Step, launched_on

WAITING_LIMIT = 32 << 20
"""Dead memory waits for the end of a run, unless more bytes than this wait while more are asked for."""


@dataclass(frozen=True, slots=True)
class LaunchRuns:
    """Steps in parts: runs of launches, and every other step alone. ``starts`` are the positions of their first steps,
    ``of`` gives the part of each step."""

    starts: tuple[int, ...]
    of: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.starts)

    def span(self, run: int) -> range:
        """The positions of a run's steps."""
        return range(self.starts[run], self.starts[run + 1] if run + 1 < len(self) else len(self.of))


def find_runs(
    steps: Sequence[Step],
    placements: Mapping[str, Placement],
    taking: AbstractSet[int],
    dying: Mapping[int, int],
) -> LaunchRuns:
    """Cut steps into runs. ``taking`` are the positions of those that take memory of their own, ``dying`` gives the
    bytes that nothing wants after a step."""
    starts: list[int] = []
    of: list[int] = []
    waiting = 0
    before: Device | None = None
    for position, step in enumerate(steps):
        device = launched_on(step, placements) if isinstance(step, Launch) else None
        goes_on, before = device is not None and device == before, device
        if not goes_on or (waiting > WAITING_LIMIT and position in taking):
            starts.append(position)
            waiting = 0
        of.append(len(starts) - 1)
        waiting += dying.get(position, 0)
    return LaunchRuns(tuple(starts), tuple(of))
