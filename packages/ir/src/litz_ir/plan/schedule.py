"""How a kernel's axes are mapped onto a machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Schedule:
    """For CPUs: the points of ``parallel`` (leading outer axes, flattened) are divided among threads when a thread gets
    at least ``grain`` of them; ``vector`` is the axis that runs along the lanes of a register (an inner axis, or the
    last outer one, in which case every phase runs for ``lanes`` outer points at once), ``unroll`` how many registers
    side by side. ``lanes`` 0 leaves the number to the code generator.

    For GPUs: ``blocks`` gives the extent of a program's tile along axes, those left out being one point. Two outer axes
    that are named are two dimensions of the tile, the second the faster one; one that is named is the faster end of a
    dimension that all outer axes are flattened into. Inner axes are flattened into one; where the product of their
    blocks covers it, a row is ``persistent`` (its values stay in registers between phases). A product of matrices has
    its rows, columns and summed points for dimensions, each flattened. ``warps`` is threads / 32 per program.
    ``stages`` is how many tiles a loop reads ahead that multiplies matrices, or only accumulates; 0 leaves that to the
    code generator, as no blocks leave all of this to it. ``shared`` is how many programs have each tile of outer points
    together: each has a part of the points of every phase, and those that accumulate wait for one another (see
    :mod:`litz_ir.plan.sharing`). ``relay`` is how many points of a scanned row a program has, each of the others a part
    before or after it, a power of two (see :mod:`litz_ir.plan.relay`); 0 where a program scans whole rows. ``programs``
    is how many a product of matrices has at most, which then take its tiles in turn; with 0 each tile has a program.
    ``descriptors``: tiles of its factors are read by descriptors of their memory, where the code generator can.
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
    shared: int = 1
    relay: int = 0
    programs: int = 0
    descriptors: bool = False
