"""What compiling a graph gives: the plan, its sources and binaries, and what was left to ATen. All of it data."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from litz_ir.plan import Plan, Schedule
from litz_ir.target import SourceUnit


@dataclass(frozen=True, slots=True)
class AtenFallback:
    """An operation that runs as its ATen routine, and why; ``line`` describes the user's line."""

    target: str
    reason: str
    line: str = ""


@dataclass(frozen=True, slots=True)
class TunedTiles:
    """The schedule with which a kernel was quickest when it was tuned, of a pack its own and one for each part; the
    ``seconds`` it took, and those that it took ``before``, with the schedules that it came with, the ``first``, which
    may have been the quickest."""

    schedules: tuple[Schedule, ...]
    seconds: float
    before: float
    first: tuple[Schedule, ...]


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled graph. ``seconds`` says how long each stage took when it was compiled; ``cached`` that it was not.
    ``tuned_tiles`` are the choices that its kernels were made with, by name, of those that were tuned.
    ``uncacheable`` says why it cannot be in the cache, where it depends on what has no identity."""

    key: str
    plan: Plan
    units: tuple[SourceUnit, ...]
    binaries: tuple[Path, ...]
    fallbacks: tuple[AtenFallback, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict, compare=False)
    cached: bool = False
    tuned_tiles: tuple[tuple[str, TunedTiles], ...] = ()
    uncacheable: str = ""


@dataclass(frozen=True, slots=True)
class AotWrapping:
    """What is to be done around a graph that AOTAutograd traced.

    The first ``outputs`` results are the function's, the others are saved for the backward, which takes them, then the
    gradients of the results at the positions ``differentiable``. The inputs at ``written`` are overwritten.
    """

    outputs: int
    differentiable: tuple[int, ...] = ()
    written: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CompiledCapture:
    """What a graph that Dynamo captured was compiled to; ``backward`` where gradients are wanted."""

    forward: Artifact
    wrapping: AotWrapping
    backward: Artifact | None = None
