"""The protocol of targets, which a device's package implements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from litz_ir.dtypes import DType
from litz_ir.errors import TargetError
from litz_ir.host.launch import Launcher
from litz_ir.plan.kernel import Kernel
from litz_ir.plan.program import Plan
from litz_ir.symbols.term import Size
from litz_ir.target.capabilities import Capabilities

if TYPE_CHECKING:
    from litz_ir.loops import LoopGraph

FailureCallback = Callable[[Exception, str], None]
"""A function that is called with a failure inside a call and the fallback that replaces the work; it may raise
instead.
"""

ByteRange = tuple[Size, Size]
"""First byte and byte after the last one that a launch may access, from a buffer's address; over its
kernel's symbols.
"""


def raise_failure(error: Exception, instead: str) -> None:
    """A :data:`FailureCallback` that raises the error, whatever the fallback."""
    raise error


@dataclass(frozen=True, slots=True)
class SourceUnit:
    """A source text to build, with the kernels that it defines."""

    name: str
    """Name, unique in the plan."""
    language: str
    """Language of the text."""
    text: str
    """The source text."""
    kernels: tuple[str, ...]
    """Names of the kernels that it defines."""
    flags: tuple[str, ...] = ()
    """Everything besides the text that the build depends on; part of the cache key."""
    lines: tuple[tuple[int, int], ...] = ()
    """First and last line of the text of each kernel, from 1; empty where the target does not say."""


class KernelModule(Protocol):
    """Loaded kernels, ready to launch."""

    def function(self, kernel: str) -> Launcher:
        """The launch function of a kernel, on addresses or on buffers; raises ``KeyError``."""


class NativeCall(Protocol):
    """Consecutive kernels run by one native call."""

    def run(self, addresses: Sequence[int], symbols: Sequence[int | float] = ()) -> None:
        """Run the kernels in order on the addresses of all their buffers and the values of all their symbols,
        concatenated.
        """


@runtime_checkable
class SelectingCall(NativeCall, Protocol):
    """A native call that finds each kernel's buffers among those of a call. Targets may offer it; hosts then use it."""

    def selecting(self, buffers: Sequence[int], symbols: Sequence[int]) -> Callable[..., None]:
        """``run`` for distinct addresses and symbol values: the positions of each kernel's among them are ``buffers``
        and ``symbols``, concatenated. The result takes tuples of addresses and of values, if any.
        """


@runtime_checkable
class SegmentModule(KernelModule, Protocol):
    """A module that can run several kernels in one native call. Targets may offer it; hosts then use it."""

    def segment(
        self,
        names: Sequence[str],
        waits: Sequence[bool] | None = None,
        extents: Sequence[ByteRange | None] | None = None,
    ) -> NativeCall:
        """Consecutive kernels as one native call; raises ``KeyError``.

        A kernel whose ``waits`` is False may run in parallel with those before it, back to the last one that waits; by
        default all wait. ``extents`` are the byte ranges of the buffers of all kernels, concatenated; ``None`` for a
        buffer that begins where memory was allocated, or whose range is unknown.
        """


@runtime_checkable
class LazyModule(KernelModule, Protocol):
    """A module that does some work at the first launch, with a fallback if that fails."""

    def on_failure(self, callback: FailureCallback) -> None:
        """Report such failures to ``callback``; without one they are raised."""


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """Memory whose bytes are compared with earlier ones."""

    address: int
    """Address of the first byte."""
    width: int
    """Bytes of an element: 1, 2, 4 or 8."""
    positions: bytes | None
    """Positions of the compared elements, ``i64`` in the machine's order; ``None`` for adjacent ones."""
    expected: bytes
    """The bytes that the elements had."""


@runtime_checkable
class ComparingModule(KernelModule, Protocol):
    """A module that can compare memory of the CPU in one native call. Targets may offer it; hosts then use it."""

    def comparison(self, parts: Sequence[MemoryPart]) -> Callable[[], bool] | None:
        """A function that reports whether all parts have the expected bytes; their memory must outlive it.

        ``None`` where the module's binaries cannot, such as those of an earlier version.
        """


@dataclass(frozen=True, slots=True)
class MemoryCopy:
    """Memory of a device that holds elements of other memory, in another dtype or order."""

    source: int
    """Address of the first element that is copied."""
    target: int
    """Address that it is copied to."""
    dtypes: tuple[DType, DType]
    """Dtype of the source and of the target."""
    sizes: tuple[int, ...]
    """Elements along each of at most four dimensions."""
    strides: tuple[tuple[int, ...], tuple[int, ...]]
    """Strides of the source and of the target, in elements."""


@runtime_checkable
class CopyingModule(KernelModule, Protocol):
    """A module that keeps copies of memory on its device up to date."""

    def copies(self, words: Sequence[int], copies: Sequence[MemoryCopy]) -> Callable[[], None] | None:
        """A function that makes all copies again if a word has changed since its last call, in stream order.

        ``words`` are the addresses of words of four bytes. The first call takes their values and copies nothing. The
        host does not wait. ``None`` where the module's binaries cannot, such as those of an earlier version.
        """


@runtime_checkable
class CopyingTarget(Protocol):
    """A target whose modules keep copies (:class:`CopyingModule`), of the dtypes that ``Capabilities.copies`` has."""

    def copying_units(self) -> tuple[SourceUnit, ...]:
        """Source units without kernels of a plan, which modules that keep copies need."""


@runtime_checkable
class LaunchingTarget(Protocol):
    """A target whose modules make launches faster with a library, which its ``build`` compiles once a machine."""

    def launcher_unit(self) -> SourceUnit:
        """The source of the library. ``load`` takes it and its binary with the units of a plan, or does without."""


@runtime_checkable
class PreparedTarget(Protocol):
    """A target with a slow start, such as compiler processes, that can begin early."""

    def prepare(self) -> int:
        """Start the processes that build units; returns how many units they build in parallel."""


@runtime_checkable
class PortableTarget(Protocol):
    """A target whose binaries run on other machines than the one that built them."""

    interface: int
    """Version of the interface between binaries and the code that loads them; it changes if one of them does."""

    def runs(self) -> tuple[str, ...]:
        """Names of the capabilities whose binaries this machine runs, best first."""


def interface_of(target: object) -> int:
    """Version of the interface of a target's binaries; 0 for a target that is not portable."""
    return target.interface if isinstance(target, PortableTarget) else 0


@runtime_checkable
class HostTarget(Protocol):
    """A target that can write a whole program, its steps included, for a loader without Python."""

    def emit_host(self, plan: Plan, weights: Sequence[str] = ()) -> SourceUnit:
        """The unit of the program, which ``build`` makes a shared object of.

        ``weights`` names inputs that are the same tensors in each call. Raises ``CodegenError``, which names the calls
        that keep the plan from such a program.
        """


@runtime_checkable
class LinkingTarget(Protocol):
    """A target whose units can link libraries: routines that many units call and that are compiled once."""

    def libraries(self, unit: SourceUnit) -> tuple[SourceUnit, ...]:
        """The libraries that a unit can link: sources without kernels, which ``build`` compiles too."""

    def expected_libraries(self, graph: LoopGraph) -> tuple[SourceUnit, ...]:
        """The libraries that the kernels of a graph probably link, so that they can be built while it is scheduled."""

    def build_linked(self, unit: SourceUnit, libraries: Sequence[Path], folder: Path) -> Path:
        """Compile a unit as ``build`` does, with the routines of all its libraries; raises ``ToolchainError``."""


@runtime_checkable
class TransferableTarget(Protocol):
    """A target that another process can make again: for compilation in child processes."""

    def arguments(self) -> Mapping[str, str]:
        """Arguments by which the constructor of the target's entry point makes an equal target, without access to the
        device.
        """


@runtime_checkable
class SchedulingTarget(Protocol):
    """A target that maps its kernels to the device itself: tile sizes, warps, stages, form."""

    def schedule(self, plan: Plan) -> Plan:
        """The plan with each :class:`~litz_ir.plan.schedule.TileRequest`, in subplans too, replaced by a complete
        schedule.

        Deterministic and pure. Raises ``CodegenError``.
        """


@runtime_checkable
class TunableTarget(Protocol):
    """A target with several candidate schedules, the fastest of which has to be measured on the device."""

    def candidates(self, kernel: Kernel) -> tuple[Kernel, ...]:
        """The kernel itself, and the same kernel with other schedules, those of subkernels included.

        Pure. Raises ``CodegenError``.
        """

    def described(self, kernel: Kernel) -> str:
        """The kernel's division into thread blocks, as a few words of text; raises ``CodegenError``."""


@runtime_checkable
class Target(Protocol):
    """A code generator for one device. Instances are cheap, have no process-wide state and are found by
    entry point.
    """

    name: str
    """Name of the entry point."""

    def capabilities(self) -> Capabilities:
        """Capabilities of the device; fast and without side effects."""

    def seconds(self, traffic: int, flops: int, launches: int) -> float:
        """Estimated seconds of ``traffic`` bytes of memory traffic, ``flops`` floating-point operations and
        ``launches``.
        """

    def emit(self, plan: Plan) -> tuple[SourceUnit, ...]:
        """The sources of a plan's kernels; deterministic and pure. Raises ``CodegenError``."""

    def build(self, unit: SourceUnit, folder: Path) -> Path:
        """Compile a source to a binary file inside ``folder``; raises ``ToolchainError``."""

    def load(
        self, units: Sequence[SourceUnit], binaries: Sequence[Path], kernels: Mapping[str, Kernel]
    ) -> KernelModule:
        """Load built binaries; raises ``ToolchainError``."""


_MEMBERS = ("name", "capabilities", "seconds", "emit", "build", "load")
"""Members of :class:`Target`; all but the first are methods."""


def missing_members(target: object) -> tuple[str, ...]:
    """Return the members of :class:`Target` that an object lacks, each with what belongs there.

    Besides absent members that is a ``name`` that is no string or is empty, and a method that cannot be called.
    """
    found = []
    for member in _MEMBERS:
        value = getattr(target, member, None)
        if member == "name":
            if not isinstance(value, str) or not value:
                found.append("name (a string: the name of the entry point)")
        elif not callable(value):
            described = (getattr(Target, member).__doc__ or "").partition(";")[0].partition(".")[0]
            found.append(f"{member} (a method: {described[0].lower()}{described[1:]})")
    return tuple(found)


def check_members(target: object) -> None:
    """Raise :class:`TargetError` with what is missing if an object lacks members of :class:`Target`."""
    lacks = missing_members(target)
    if lacks:
        raise TargetError(
            f"{type(target).__name__} lacks {', '.join(lacks)}", hint="see litz_ir.target.Target"
        )
