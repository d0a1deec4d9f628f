"""What a device's package provides to be a target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from litz_ir.plan.kernel import Kernel
from litz_ir.plan.program import Plan
from litz_ir.symbols.term import Size
from litz_ir.target.capabilities import Capabilities

LaunchFunction = Callable[[Sequence[int], Sequence[int | float]], None]
"""Runs a kernel on buffer addresses and symbol values; raises ``KernelError`` on an error code."""

FailureCallback = Callable[[Exception, str], None]
"""Is told of a failure in the midst of a call, and of what is done instead; raises where that is not wanted."""

ByteRange = tuple[Size, Size]
"""The bytes, counted from a buffer's address, between which a launch may touch it; over its kernel's symbols."""


def raise_failure(error: Exception, instead: str) -> None:
    """A :data:`FailureCallback` that wants nothing done instead: it raises the error."""
    raise error


@dataclass(frozen=True, slots=True)
class SourceUnit:
    """A text to build: ``name`` is unique in its plan, ``language`` what it is written in, ``kernels`` what it defines.
    ``flags`` are what the build depends on besides the text; they enter cache keys."""

    name: str
    language: str
    text: str
    kernels: tuple[str, ...]
    flags: tuple[str, ...] = ()


class KernelModule(Protocol):
    """Built kernels, ready to launch."""

    def function(self, kernel: str) -> LaunchFunction:
        """The launcher of a kernel; raises ``KeyError``."""


class NativeCall(Protocol):
    """Consecutive kernels as one native call."""

    def run(self, addresses: Sequence[int], symbols: Sequence[int | float] = ()) -> None:
        """Run on the addresses of all kernels' buffers, one kernel after another, and likewise the symbol values."""


@runtime_checkable
class SegmentModule(KernelModule, Protocol):
    """A module that can run several kernels in one native call. Targets may offer it; hosts use it where it is."""

    def segment(
        self,
        names: Sequence[str],
        waits: Sequence[bool] | None = None,
        extents: Sequence[ByteRange | None] | None = None,
    ) -> NativeCall:
        """A run of kernels, in order; raises ``KeyError``.

        Where ``waits`` is false, a kernel may run beside those before it since the last that waits; by default all
        wait. ``extents`` are those of the buffers of all kernels, one after another; ``None`` for one that begins where
        memory was allocated, or of which nobody can say.
        """


@runtime_checkable
class LazyModule(KernelModule, Protocol):
    """A module that does some of its work when a launch first asks for it, and knows what to do where that fails."""

    def on_failure(self, told: FailureCallback) -> None:
        """Have ``told`` hear of such failures; without, they are raised."""


@runtime_checkable
class PreparedTarget(Protocol):
    """A target that takes a while until it can build: told early, it is ready when the first units are."""

    def prepare(self) -> int:
        """Start what builds units; how many are built side by side."""


@runtime_checkable
class SchedulingTarget(Protocol):
    """A target that decides how its kernels map onto the device: tile sizes, warps, stages, form."""

    def schedule(self, plan: Plan) -> Plan:
        """The plan with a :class:`~litz_ir.plan.schedule.TileRequest` of each kernel, subplans' included, replaced by a
        schedule that leaves nothing open. Deterministic, pure. Raises ``CodegenError``."""


@runtime_checkable
class TunableTarget(Protocol):
    """A target that cannot tell which of a few schedules is the quickest without trying them on the device."""

    def candidates(self, kernel: Kernel) -> tuple[Kernel, ...]:
        """The kernel as it is, and others with other schedules (a pack's parts have them). Pure. Raises
        ``CodegenError``."""

    def described(self, kernel: Kernel) -> str:
        """How the kernel is cut into programs, in a few words for a person. Raises ``CodegenError``."""


@runtime_checkable
class Target(Protocol):
    """A device as litz sees it. Instances are cheap, hold no process-wide state and are found by entry point."""

    name: str

    def capabilities(self) -> Capabilities:
        """What the device can do; quick, and free of side effects."""

    def seconds(self, traffic: int, flops: int, launches: int) -> float:
        """An estimate of the time that so much memory traffic, arithmetic and so many launches take."""

    def emit(self, plan: Plan) -> tuple[SourceUnit, ...]:
        """The sources of a plan's kernels; deterministic, pure. Raises ``CodegenError``."""

    def build(self, unit: SourceUnit, folder: Path) -> Path:
        """Turn a source into a binary file inside ``folder``. Raises ``ToolchainError``."""

    def load(
        self, units: Sequence[SourceUnit], binaries: Sequence[Path], kernels: Mapping[str, Kernel]
    ) -> KernelModule:
        """Load built binaries. Raises ``ToolchainError``."""
