"""The plan: kernels, memory, and the steps that a host program takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from litz_ir.device import STORAGE_ALIGNMENT, Device
from litz_ir.fused.decision import Decision
from litz_ir.loops.layout import span
from litz_ir.loops.nodes import (
    Argument,
    AssertedError,
    Attributes,
    Input,
    Output,
    RegionKind,
    TensorType,
    Value,
)
from litz_ir.origin import UNKNOWN, Origin
from litz_ir.plan.kernel import Kernel, KernelOrigin
from litz_ir.scalar.node import Expr
from litz_ir.symbols.polynomials import add, mul
from litz_ir.symbols.table import SymbolTable
from litz_ir.symbols.term import Size


@dataclass(frozen=True, slots=True)
class Storage:
    """An allocation of bytes on a device, made and freed by steps of the plan."""

    name: str
    """Name, unique in the plan."""
    nbytes: Size
    """Size in bytes."""
    device: Device
    """Device of the memory."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The memory of a buffer: a storage, the memory of a base, or memory that a step defines.

    At most one of ``storage`` and ``base`` is given. With neither, the buffer is an input, a constant or a
    call's result.
    """

    type: TensorType
    """Type of the buffer."""
    storage: str | None = None
    """Storage that the buffer lies in."""
    offset: Size = 0
    """Bytes from the start of the storage."""
    base: str | None = None
    """Buffer whose memory this one shares: an input, a call's result or another placed buffer.

    The offset of this buffer's layout counts from the start of the base's memory.
    """

    @property
    def nbytes(self) -> Size:
        """Bytes from the start of the buffer's memory, or of its base's, to the end of its last element."""
        return mul(span(self.type.shape, self.type.layout), self.type.dtype.itemsize)

    @property
    def aligned_nbytes(self) -> Size:
        """Bytes of a storage of the buffer alone: :attr:`nbytes` up to the next multiple of ``STORAGE_ALIGNMENT``."""
        return mul(add(self.nbytes, STORAGE_ALIGNMENT - 1) // STORAGE_ALIGNMENT, STORAGE_ALIGNMENT)


@dataclass(frozen=True, slots=True)
class Allocate:
    """Allocate a storage."""

    storage: str
    """Name of the storage."""


@dataclass(frozen=True, slots=True)
class Free:
    """Free a storage, or drop a call's result."""

    name: str
    """Name of the storage or of the call's result."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Run a kernel on buffers and symbol values."""

    kernel: str
    """Name of the kernel."""
    buffers: tuple[str, ...]
    """One buffer for each parameter of the kernel."""
    symbols: tuple[Size, ...] = ()
    """One value over the plan's symbols for each symbol of the kernel."""
    origins: tuple[KernelOrigin, ...] = field(default=(), compare=False)
    """Fused operations that the kernel computes."""


@dataclass(frozen=True, slots=True)
class CallStep:
    """Call a routine of the extern table."""

    target: str
    """The routine: an ATen overload or an entry of the extern table."""
    arguments: tuple[Argument, ...]
    """Positional arguments."""
    attributes: Attributes
    """Keyword arguments."""
    results: tuple[str | None, ...]
    """Name of each value that the routine returns; ``None`` for one that nothing reads."""
    unpack: bool = False
    """True if the routine returns a tuple or list."""
    reason: str = ""
    """Reason for the call, as a sentence; empty for a call that is none of an operator."""
    origin: Origin = field(default=UNKNOWN, compare=False)
    """Source of the call in the user's program."""
    pairs: tuple[str, ...] = ()
    """Results that the routine returns as complex tensors, whose memory the plan reads as (real, imaginary) pairs."""


SymbolSource = tuple[Literal["size", "stride", "argument"], str, int]
"""The source of a symbol: the size or stride of a tensor in a dimension, or a scalar argument."""


@dataclass(frozen=True, slots=True)
class DefineStep:
    """Bind a symbol to a size or stride of a tensor, to an argument, or to a 0-d body evaluated on the host."""

    symbol: str
    """Symbol that gets a value."""
    source: SymbolSource | Expr
    """Source of the value."""


@dataclass(frozen=True, slots=True)
class CheckStep:
    """Raise ``message`` as an ``error`` unless the 0-d ``b1`` body holds on the host."""

    condition: Expr
    """Body of the condition."""
    message: str
    """Message of the exception."""
    error: AssertedError = "RuntimeError"
    """Exception class that is raised."""
    origin: Origin = field(default=UNKNOWN, compare=False)
    """Source of the assertion in the user's program."""


@dataclass(frozen=True, slots=True)
class RegionStep:
    """Run a higher-order operator over subplans."""

    kind: RegionKind
    """Kind of the operator."""
    plans: tuple[str, ...]
    """Names of the subplans, in the order of the region's subgraphs."""
    arguments: tuple[Argument, ...]
    """Arguments, in the order of its kind."""
    results: tuple[str, ...]
    """Names of the results."""
    origin: Origin = field(default=UNKNOWN, compare=False)
    """Source of the operator in the user's program."""


Step = Allocate | Free | Launch | CallStep | DefineStep | CheckStep | RegionStep
"""A step of a plan, which the host runs."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a host needs to run a graph: data without torch or closures, printable and serialisable.

    A launch runs on the device of its buffers; copies between devices are calls. Kernels of one name, here and
    in subplans, are one kernel.
    """

    name: str
    """Name of the plan, which no plan below it has."""
    device: Device
    """Device that the plan is for: a GPU if any value is on one."""
    capability: str
    """Name of the device's instruction set or chip."""
    symbols: SymbolTable
    """Symbols of the plan."""
    inputs: tuple[Input, ...]
    """Arguments of the plan, in order."""
    constants: tuple[Value, ...]
    """Tensors that the plan refers to by name and that are stored outside it."""
    buffers: tuple[tuple[str, Placement], ...]
    """Placement of every buffer that steps name."""
    storages: tuple[Storage, ...]
    """Allocations that steps make and free."""
    kernels: tuple[Kernel, ...]
    """Kernels that steps launch."""
    steps: tuple[Step, ...]
    """Steps in the order in which the host takes them."""
    outputs: tuple[Output, ...]
    """Results of the plan, in order."""
    peak: Size = 0
    """Modelled maximum of bytes that a run has allocated at once.

    Storages, results of calls and memory that calls take while they run count; inputs and frozen results do
    not.
    """
    decisions: tuple[Decision, ...] = field(default=(), compare=False)
    """Decisions of the compiler; not part of the plan's identity."""
    subplans: tuple[Plan, ...] = ()
    """Plans that regions run, each once, however many steps run it."""
    donated: tuple[str, ...] = ()
    """Inputs whose memory the plan reuses: all bytes up to the next multiple of ``STORAGE_ALIGNMENT``. Their contents
    are lost after a run."""

    def kernel(self, name: str) -> Kernel:
        """The kernel called ``name``; raises ``KeyError``."""
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        raise KeyError(name)

    def subplan(self, name: str) -> Plan:
        """The subplan called ``name``; raises ``KeyError``."""
        for plan in self.subplans:
            if plan.name == name:
                return plan
        raise KeyError(name)

    def placement(self, name: str) -> Placement:
        """The memory of the buffer called ``name``; raises ``KeyError``."""
        for buffer, placement in self.buffers:
            if buffer == name:
                return placement
        raise KeyError(name)


def plans_in(plan: Plan) -> Iterator[Plan]:
    """Yield the plan and every subplan below it, outer ones first."""
    yield plan
    for each in plan.subplans:
        yield from plans_in(each)


def kernels_in(plan: Plan) -> tuple[Kernel, ...]:
    """The kernels of a plan and of all its subplans, each once."""
    return tuple({kernel.name: kernel for each in plans_in(plan) for kernel in each.kernels}.values())
