"""How a kernel's axes are mapped onto a machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Schedule:
    """For CPUs: the points of ``parallel`` (leading outer axes, flattened) are divided among threads when a thread gets
    at least ``grain`` of them; ``vector`` is the axis that runs along the lanes of a register (an inner axis, or the
    last outer one, in which case every phase runs for ``lanes`` outer points at once), ``unroll`` how many registers
    side by side. ``lanes`` 0 leaves the number to the code generator.

    For GPUs: ``blocks`` gives the extent of a program's tile per axis; an inner axis whose block covers it is
    ``persistent`` (its values stay in registers between phases); ``warps`` is threads / 32 per program. ``stages`` is
    how many tiles a loop that multiplies matrices reads ahead; 0 leaves that to the code generator.
    """

    parallel: tuple[str, ...] = ()
    vector: str | None = None
    lanes: int = 0
    unroll: int = 1
    grain: int = 1
    blocks: tuple[tuple[str, int], ...] = ()
    persistent: bool = False
    warps: int = 4
    stages: int = 0
