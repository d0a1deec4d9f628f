"""Kernels: the unit that a code generator turns into one function.

Layout is applied here: a kernel sees each buffer as a flat run of elements, and a ``Load`` or ``Store`` gives one term,
the element offset from the buffer's start. So equal layers become equal kernels, whatever their buffers are called.

A kernel runs its phases in order for every point of its outer axes. A phase is a loop nest over its own axes (none:
one point) in which every statement runs at every point. Between phases of one outer point there is a barrier: a later
phase may read all that earlier phases of the same outer point stored or accumulated.

A kernel may also be a pack: several loops that have nothing to do with one another and run in any order, or at the
same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from litz_ir.dtypes import DType
from litz_ir.loops.nodes import Axis, Combiner, ScatterMode
from litz_ir.origin import Origin
from litz_ir.plan.schedule import Schedule
from litz_ir.scalar.expr import Expr
from litz_ir.symbols.table import SymbolInfo
from litz_ir.symbols.term import Size

Access = Literal["in", "out", "inout", "workspace"]
"""What a kernel does with a buffer. ``scratch`` is memory for its programs to tell one another what they found: no
statement names it, and what it holds before and after a launch means nothing; a launch begins with zeros in what
:func:`litz_ir.plan.cluster.zeroed_words` counts."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A buffer argument. ``access`` says what the kernel does with it; ``alignment`` is a promise in bytes."""

    name: str
    dtype: DType
    access: Access
    alignment: int = 1


@dataclass(frozen=True, slots=True)
class ScratchArray:
    """Scratch of ``size`` elements per outer point, private to it; read and written by flat offset like a parameter.

    A size over the kernel's symbols is allocated when the kernel runs.
    """

    name: str
    dtype: DType
    size: Size


@dataclass(frozen=True, slots=True)
class Store:
    """``buffer[offset] = value`` (or combined into it) at every point of the phase.

    Statements of other modes than ``set`` run in row-major order of the phase's axes.
    """

    buffer: str
    offset: Size
    value: Expr
    mode: ScatterMode = "set"


@dataclass(frozen=True, slots=True)
class Accumulate:
    """Combine ``values`` over all points of the phase, starting from the identity.

    Later phases of the same outer point read the results as ``Scalar(name, dtype)``. ``results`` holds (name, dtype)
    for each result of the combiner.
    """

    results: tuple[tuple[str, DType], ...]
    combiner: Combiner
    values: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class ScanStore:
    """A running combination along the phase's last axis, restarted whenever another axis of the phase moves.

    After each point the ``k``-th running result is stored to ``targets[k] = (buffer, offset)``. With the combiner
    ``sort`` these are the points along that axis in order, the largest first.
    """

    combiner: Combiner
    values: tuple[Expr, ...]
    targets: tuple[tuple[str, Size], ...]


Statement = Store | Accumulate | ScanStore


@dataclass(frozen=True, slots=True)
class Phase:
    """A loop nest inside one outer point. All statements of a phase are over all of its axes."""

    axes: tuple[Axis, ...]
    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class KernelOrigin:
    """What a kernel came from: a fused operation's node and the user's line, and the ``invocation`` of a pack, by its
    number,
    that it is in. Not part of a kernel's identity."""

    operation: str
    origin: Origin
    invocation: int = 0


@dataclass(frozen=True, slots=True)
class Kernel:
    """One function of the generated program.

    ``parameters`` are passed in order as pointers, ``symbols`` (name and kind: ``int`` as ``int64_t``, ``float`` as
    double, ``bool`` as ``int64_t``) after them. A pack has ``subkernels``, and neither axes, locals, phases nor a
    schedule of its own (see :mod:`litz_ir.plan.horizontal_fusion`).
    """

    name: str
    parameters: tuple[Parameter, ...]
    symbols: tuple[SymbolInfo, ...]
    outer: tuple[Axis, ...]
    scratch: tuple[ScratchArray, ...]
    phases: tuple[Phase, ...]
    schedule: Schedule
    subkernels: tuple[Subkernel, ...] = ()

    def parameter(self, name: str) -> Parameter:
        """The parameter of that name; raises ``KeyError``."""
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Invocation:
    """What one loop of a pack runs on: a parameter of the pack, by name, for each parameter of its kernel, and a value
    over the pack's symbols for each symbol."""

    buffers: tuple[str, ...]
    symbols: tuple[Size, ...] = ()


@dataclass(frozen=True, slots=True)
class Subkernel:
    """Loops of a pack that are one ``kernel``, each on buffers and sizes of its own."""

    kernel: Kernel
    invocations: tuple[Invocation, ...]
