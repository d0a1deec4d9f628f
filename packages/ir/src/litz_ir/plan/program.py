"""The plan: kernels, memory and the steps that a host program takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from litz_ir.device import Device
from litz_ir.fused.decision import Decision
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
from litz_ir.scalar.expr import Expr
from litz_ir.symbols.table import SymbolTable
from litz_ir.symbols.term import Size


@dataclass(frozen=True, slots=True)
class Storage:
    """A run of ``nbytes`` bytes on a device, allocated and freed by steps of the plan."""

    name: str
    nbytes: Size
    device: Device


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a buffer lives. Exactly one holds: in ``storage`` at byte ``offset``; or ``base`` names the buffer (an
    input, a call's result, another placed buffer) whose memory it shares, its own layout's offset counted from the
    start of the base's memory; or neither: a step of the plan defines it (an input, a constant, a call's result)."""

    type: TensorType
    storage: str | None = None
    offset: Size = 0
    base: str | None = None


@dataclass(frozen=True, slots=True)
class Allocate:
    """Make a storage available."""

    storage: str


@dataclass(frozen=True, slots=True)
class Free:
    """Give a storage back, or drop a call's result."""

    name: str


@dataclass(frozen=True, slots=True)
class Launch:
    """Run a kernel on buffers (one per parameter) and symbol values (one per kernel symbol, over the plan's symbols).

    ``origins`` say where the fused operations came from.
    """

    kernel: str
    buffers: tuple[str, ...]
    symbols: tuple[Size, ...] = ()
    origins: tuple[KernelOrigin, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class CallStep:
    """Call a routine of the extern table; ``results`` names what it returns (``None``: not wanted).

    ``unpack`` is true when the routine returns a tuple or list; ``pairs`` names the results that it returns as complex
    tensors, whose memory the plan reads as pairs.
    """

    target: str
    arguments: tuple[Argument, ...]
    attributes: Attributes
    results: tuple[str | None, ...]
    unpack: bool = False
    reason: str = ""
    origin: Origin = field(default=UNKNOWN, compare=False)
    pairs: tuple[str, ...] = ()


SymbolSource = tuple[Literal["size", "stride", "argument"], str, int]
"""What is read off a tensor, the tensor and the dimension; or an argument as it is."""


@dataclass(frozen=True, slots=True)
class DefineStep:
    """Bind a symbol: from a dimension or stride of a tensor that came from outside, or from a 0-d body evaluated on
    the host."""

    symbol: str
    source: SymbolSource | Expr


@dataclass(frozen=True, slots=True)
class CheckStep:
    """Raise ``message``, an ``error``, unless the 0-d ``b1`` body holds on the host."""

    condition: Expr
    message: str
    error: AssertedError = "RuntimeError"
    origin: Origin = field(default=UNKNOWN, compare=False)


@dataclass(frozen=True, slots=True)
class RegionStep:
    """Run structured control flow whose branches are subplans, named in the order of the region's subgraphs."""

    kind: RegionKind
    plans: tuple[str, ...]
    arguments: tuple[Argument, ...]
    results: tuple[str, ...]
    origin: Origin = field(default=UNKNOWN, compare=False)


Step = Allocate | Free | Launch | CallStep | DefineStep | CheckStep | RegionStep


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a host needs: no torch, no closures, printable and serialisable.

    ``device`` is the one that the plan is for, a GPU where any value is on one, and ``capability`` the name of its
    instruction set or chip. A launch runs on the device of its buffers, and copies between devices are calls.
    ``buffers`` places every value that steps name; ``peak`` is the modelled number of bytes that a run of it has
    allocated at once: its storages, what calls return and what they take while they run, without its inputs and what is
    kept from run to run. ``donated`` names the inputs that the plan writes over for want of memory: what they held is
    lost when it has run. ``subplans`` are what its control flow runs: each stands once, however many steps run it.
    Kernels that have one name, here and in subplans, are one kernel.
    """

    name: str
    device: Device
    capability: str
    symbols: SymbolTable
    inputs: tuple[Input, ...]
    constants: tuple[Value, ...]
    buffers: tuple[tuple[str, Placement], ...]
    storages: tuple[Storage, ...]
    kernels: tuple[Kernel, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Output, ...]
    peak: Size = 0
    decisions: tuple[Decision, ...] = field(default=(), compare=False)
    subplans: tuple[Plan, ...] = ()
    donated: tuple[str, ...] = ()

    def kernel(self, name: str) -> Kernel:
        """The kernel of that name; raises ``KeyError``."""
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        raise KeyError(name)

    def subplan(self, name: str) -> Plan:
        """The subplan of that name; raises ``KeyError``."""
        for plan in self.subplans:
            if plan.name == name:
                return plan
        raise KeyError(name)

    def placement(self, name: str) -> Placement:
        """Where a buffer lives; raises ``KeyError``."""
        for buffer, placement in self.buffers:
            if buffer == name:
                return placement
        raise KeyError(name)


def plans_in(plan: Plan) -> Iterator[Plan]:
    """The plan and every plan below it, outer ones first."""
    yield plan
    for each in plan.subplans:
        yield from plans_in(each)


def kernels_in(plan: Plan) -> tuple[Kernel, ...]:
    """The kernels of a plan and of all below it, each once."""
    return tuple({kernel.name: kernel for each in plans_in(plan) for kernel in each.kernels}.values())
