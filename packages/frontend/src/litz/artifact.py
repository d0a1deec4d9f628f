"""Artifacts: the result of compiling a graph, as data: plan, sources, binaries and fallbacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litz_ir.plan import Plan, Schedule
from litz_ir.target import SourceUnit

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class AtenFallback:
    """An operation that runs as its ATen kernel."""

    target: str
    """Name of the ATen overload."""

    reason: str
    """Reason that the operation is not generated, as a sentence."""

    line: str = ""
    """Description of the user's source line; empty where it is unknown."""


@dataclass(frozen=True, slots=True)
class TunedTiles:
    """The fastest schedules found for a kernel by autotuning."""

    schedules: tuple[Schedule, ...]
    """The schedule of the kernel; for a horizontally fused kernel its own, then one for each subkernel."""

    seconds: float
    """Time of a launch with ``schedules``, in seconds."""

    before: float
    """Time of a launch with the schedules ``first``, in seconds."""

    first: tuple[Schedule, ...]
    """The schedules chosen without autotuning, which may be the fastest."""


AttributePosition = tuple[str, tuple[int, ...]]
"""Name of a constant, and the position of the node that reads it as an attribute of the captured module; before that,
in a subgraph, the positions of the nodes that read the subgraph."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled graph."""

    key: str
    """Key in the AOT graph cache; empty where the artifact is not cached."""

    plan: Plan
    """Kernels, buffers and steps, for the host program."""

    units: tuple[SourceUnit, ...]
    """Sources of the kernels."""

    binaries: tuple[Path, ...]
    """Path of the binary of each source, in the order of ``units``."""

    fallbacks: tuple[AtenFallback, ...] = ()
    """Operations that run as ATen kernels for want of a lowering, or after a failure."""

    seconds: dict[str, float] = field(default_factory=dict, compare=False)
    """Time of each stage of the compilation, in seconds, by name; not compared."""

    cached: bool = False
    """True where the artifact was read from the cache, not compiled."""

    tuned_tiles: tuple[tuple[str, TunedTiles], ...] = ()
    """Schedules found by autotuning that the kernels were built with, by kernel name."""

    attributes: tuple[AttributePosition, ...] = ()
    """Constants of the plan that are attributes of the captured module, where the artifact is cached."""

    uncacheable: str = ""
    """Reason that the cache cannot store the artifact: it depends on an object without an identity. Else empty."""


@dataclass(frozen=True, slots=True)
class AotWrapping:
    """The work left to do around a graph that AOTAutograd traced."""

    outputs: int
    """Number of the function's results; the further results are saved for the backward."""

    differentiable: tuple[int, ...] = ()
    """Positions of the results whose gradients the backward takes, after the saved tensors."""

    written: tuple[int, ...] = ()
    """Positions of the inputs that the graph overwrites."""


@dataclass(frozen=True, slots=True)
class CompiledCapture:
    """The compiled form of a graph that Dynamo captured."""

    forward: Artifact
    """The forward graph, or the inference graph."""

    wrapping: AotWrapping
    """The work to do around the calls."""

    backward: Artifact | None = None
    """The backward graph; ``None`` without gradients."""

    constants: tuple[Mapping[str, torch.Tensor], ...] = field(default=(), compare=False)
    """Tensors that the forward and the backward contain, by name; empty where neither has one."""

    def constants_of(self, half: int) -> Mapping[str, torch.Tensor]:
        """Return the constants of the forward (0) or the backward (1)."""
        return self.constants[half] if self.constants else {}


def unit_data(unit: SourceUnit) -> dict[str, Any]:
    """Return a unit as JSON data."""
    return {
        "name": unit.name, "language": unit.language, "text": unit.text, "kernels": list(unit.kernels),
        "flags": list(unit.flags), "lines": [list(each) for each in unit.lines],
    }  # fmt: skip


def unit_from(data: dict[str, Any]) -> SourceUnit:
    """Return the unit of JSON data; raise ``KeyError``, ``TypeError`` or ``ValueError`` for other data."""
    return SourceUnit(
        str(data["name"]),
        str(data["language"]),
        str(data["text"]),
        tuple(data["kernels"]),
        tuple(data["flags"]),
        tuple((int(first), int(last)) for first, last in data["lines"]),
    )
