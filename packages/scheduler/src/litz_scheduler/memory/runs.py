"""Runs of launches: consecutive launches on one device are one native call, within which nothing is allocated or
freed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from litz_ir.device import Device
from litz_ir.plan import Launch, Placement, Step, launched_on

WAITING_LIMIT = 32 << 20
"""A run ends before a launch that allocates when more than this many bytes (32 MiB) wait to be freed after the run."""


@dataclass(frozen=True, slots=True)
class LaunchRuns:
    """A division of steps into runs: consecutive launches on one device, or one other step."""

    starts: tuple[int, ...]
    """The position of the first step of each run."""
    of: tuple[int, ...]
    """The run of each step."""

    def __len__(self) -> int:
        return len(self.starts)

    def span(self, run: int) -> range:
        """Return the positions of the steps of a run."""
        return range(self.starts[run], self.starts[run + 1] if run + 1 < len(self) else len(self.of))


def find_runs(
    steps: Sequence[Step],
    placements: Mapping[str, Placement],
    allocating: AbstractSet[int],
    freed: Mapping[int, int],
) -> LaunchRuns:
    """Divide steps into runs.

    ``allocating`` has the positions of steps that allocate memory, ``freed`` the bytes last used at each position.
    """
    starts: list[int] = []
    of: list[int] = []
    waiting = 0
    before: Device | None = None
    for position, step in enumerate(steps):
        device = launched_on(step, placements) if isinstance(step, Launch) else None
        continues, before = device is not None and device == before, device
        if not continues or (waiting > WAITING_LIMIT and position in allocating):
            starts.append(position)
            waiting = 0
        of.append(len(starts) - 1)
        waiting += freed.get(position, 0)
    return LaunchRuns(tuple(starts), tuple(of))
