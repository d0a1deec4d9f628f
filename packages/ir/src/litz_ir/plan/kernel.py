"""Kernels: the unit that a code generator turns into one function.

Layout is applied here: a kernel sees each buffer as a flat array of elements, and a ``Load`` or ``Store`` has
one index term, the element offset from the buffer's start. So equal layers become equal kernels, whatever their
buffers are called.

A kernel runs its phases in order for every point of its outer axes. A phase is a loop nest over its own axes
(without axes: one point) in which every statement runs at every point. Between phases of one outer point there
is a barrier: a later phase may read all that earlier phases of the same outer point stored or accumulated.

A horizontally fused kernel has subkernels instead, whose invocations are independent and run in any order or in
parallel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from litz_ir.dtypes import DType
from litz_ir.loops.nodes import Axis, Combiner, ScatterMode
from litz_ir.origin import Origin
from litz_ir.plan.schedule import Schedule
from litz_ir.scalar.node import Expr
from litz_ir.symbols.table import SymbolInfo
from litz_ir.symbols.term import Size

Access = Literal["in", "out", "inout", "workspace"]
"""The use that a kernel makes of a buffer.

A ``workspace`` is memory by which the thread blocks of a kernel communicate: no statement names it, and its
contents before and after a launch have no meaning, except that a launch begins with zeros in the elements that
:func:`litz_ir.plan.cluster.zeroed_words` counts.
"""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A buffer argument of a kernel."""

    name: str
    """Name of the parameter."""
    dtype: DType
    """Dtype of the elements."""
    access: Access
    """The use that the kernel makes of the buffer."""
    alignment: int = 1
    """Bytes that the buffer's address is known to be a multiple of."""


@dataclass(frozen=True, slots=True)
class ScratchArray:
    """Memory private to one outer point, read and written by flat offset like a parameter."""

    name: str
    """Name, distinct from those of parameters."""
    dtype: DType
    """Dtype of the elements."""
    size: Size
    """Elements; a size over the kernel's symbols is allocated when the kernel runs."""


@dataclass(frozen=True, slots=True)
class Store:
    """``buffer[offset] = value``, or the value combined into that element, at every point of the phase.

    Statements of modes other than ``set`` run in row-major order of the phase's axes.
    """

    buffer: str
    """Parameter or scratch array that is stored to."""
    offset: Size
    """Element offset from the buffer's start."""
    value: Expr
    """Value at each point."""
    mode: ScatterMode = "set"
    """Combination with the element in memory."""


@dataclass(frozen=True, slots=True)
class Accumulate:
    """Combine ``values`` over all points of the phase, starting from the identity.

    Later phases of the same outer point read the results as ``Scalar(name, dtype)``.
    """

    results: tuple[tuple[str, DType], ...]
    """Name and dtype of each result of the combiner."""
    combiner: Combiner
    """Combiner of the values."""
    values: tuple[Expr, ...]
    """One expression for each value that the combiner takes."""


@dataclass(frozen=True, slots=True)
class ScanStore:
    """A running combination along the phase's last axis, restarted for each point of the other axes.

    With the combiner ``sort`` the results are the points along that axis, sorted in descending order.
    """

    combiner: Combiner
    """Combiner of the values."""
    values: tuple[Expr, ...]
    """One expression for each value that the combiner takes."""
    targets: tuple[tuple[str, Size], ...]
    """Buffer and element offset to which each running result is stored after each point."""


Statement = Store | Accumulate | ScanStore
"""A statement of a phase, which runs at every point."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A loop nest inside one outer point; every statement runs at every point of all axes."""

    axes: tuple[Axis, ...]
    """Axes of the loop nest, in addition to the outer axes."""
    statements: tuple[Statement, ...]
    """Statements that run at every point, in order."""


@dataclass(frozen=True, slots=True)
class KernelOrigin:
    """A fused operation that a kernel computes, and the user's source line; not part of a kernel's identity."""

    operation: str
    """Name of the operation's FX node."""
    origin: Origin
    """Source of the operation in the user's program."""
    invocation: int = 0
    """Number of the invocation that computes it; 0 unless the kernel is horizontally fused."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One function of the generated program."""

    name: str
    """Name of the function."""
    parameters: tuple[Parameter, ...]
    """Buffer arguments, passed in order as pointers."""
    symbols: tuple[SymbolInfo, ...]
    """Numbers, passed after the pointers: ``int`` and ``bool`` as ``int64_t``, ``float`` as double."""
    outer: tuple[Axis, ...]
    """Axes for each point of which the phases run."""
    scratch: tuple[ScratchArray, ...]
    """Arrays private to each outer point."""
    phases: tuple[Phase, ...]
    """Loop nests that run in order for each outer point."""
    schedule: Schedule
    """Mapping of the axes onto the machine."""
    subkernels: tuple[Subkernel, ...] = ()
    """Subkernels of a horizontally fused kernel, which has no axes, scratch arrays or phases of its own.

    See :mod:`litz_ir.plan.horizontal_fusion`.
    """

    def parameter(self, name: str) -> Parameter:
        """The parameter called ``name``; raises ``KeyError``."""
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Invocation:
    """The arguments that one invocation of a subkernel runs on."""

    buffers: tuple[str, ...]
    """For each parameter of the subkernel, the name of a parameter of the fused kernel."""
    symbols: tuple[Size, ...] = ()
    """For each symbol of the subkernel, a value over the fused kernel's symbols."""


@dataclass(frozen=True, slots=True)
class Subkernel:
    """A kernel of a horizontally fused one, and the invocations that run it."""

    kernel: Kernel
    """The kernel, with parameters and symbols of its own."""
    invocations: tuple[Invocation, ...]
    """Arguments of each invocation."""
