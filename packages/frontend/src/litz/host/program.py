"""Host programs as data: their text, and the globals that it needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from litz_ir.device import Device
from litz_ir.dtypes import DType
from litz_ir.loops import TensorType
from litz_ir.plan import CallStep, Launch
from litz_ir.symbols import Size


@dataclass(frozen=True, slots=True)
class MemoryLocation:
    """The start of a buffer's memory."""

    owner: str
    """Name of the buffer or storage that contains it."""

    offset: Size = 0
    """Offset from the start of the owner, in bytes."""

    storage: bool = False
    """True where the owner is a storage."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive launches on one device that are made by one native call."""

    name: str
    """Name of the call in the text."""

    buffers: tuple[MemoryLocation, ...]
    """Distinct memory locations, in the order in which their addresses are passed."""

    symbols: tuple[Size, ...]
    """Distinct symbol terms, in the order in which their values are passed."""

    launches: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]
    """Kernel name, positions of its buffers and positions of its symbols, for each launch."""

    waits: tuple[bool, ...]
    """True for launches that must wait for earlier ones of the segment."""

    given: tuple[tuple[TensorType | None, ...], ...]
    """Types of the buffers of each launch; ``None`` for buffers that the program allocates."""

    device: Device
    """Device of the launches."""


Detail = Literal["runs", "steps", "values"]
"""Steps that an observer of a host program is shown: none, since each run of launches is one native call (``runs``);
each launch and library call (``steps``); these, and then the tensors that they computed (``values``)."""

ObservedStep = Launch | CallStep
"""A step that observers are shown."""


@dataclass(frozen=True, slots=True)
class InputAsserts:
    """Assertions about inputs in a host program."""

    sizes: bool = False
    """True to assert shape, strides and dtype."""

    alignment: bool = False
    """True to assert addresses."""

    def functions(self) -> tuple[str, ...]:
        """Return the names of the functions that the assertions call."""
        asked = (("assert_sizes", self.sizes), ("assert_aligned", self.alignment))
        return tuple(name for name, wanted in asked if wanted)


NO_ASSERTS = InputAsserts()
"""Those of a program that trusts its caller."""


@dataclass(frozen=True, slots=True)
class Computed:
    """Tensors that a step computed, shown to a function."""

    name: str
    """Name of the function in the text."""

    step: ObservedStep
    """The step."""

    values: tuple[str, ...]
    """Names of the tensors, in the order in which they are passed."""


@dataclass(frozen=True, slots=True)
class FrozenCopy:
    """A result of a frozen region on a GPU that has the elements of an argument, in another dtype or order."""

    argument: int
    """Position of the argument."""

    result: int
    """Position of the result. Elements that are not copied are zero."""

    dtypes: tuple[DType, DType]
    """Dtypes of the argument and of the result."""

    starts: tuple[int, int]
    """First element of the argument and of the result that is copied."""

    sizes: tuple[int, ...]
    """Elements along each dimension."""

    strides: tuple[tuple[int, ...], tuple[int, ...]]
    """Strides of the argument and of the result, in elements."""


@dataclass(frozen=True, slots=True)
class HostProgram:
    """A generated Python function with the globals that it needs."""

    name: str
    """Name of the function, which takes the list of arguments."""

    text: str
    """Source that defines the function."""

    segments: tuple[Segment, ...]
    """Native calls among its globals."""

    externs: tuple[tuple[str, str], ...]
    """Target of each routine, and its name in the text."""

    constants: tuple[tuple[str, str], ...] = ()
    """Name of each constant in the plan, and its name in the text."""

    asserts: tuple[str, ...] = ()
    """Names of the assertions that it makes about inputs."""

    branches: tuple[HostProgram, ...] = field(default=())
    """Host programs of the subplans."""

    frozen: frozenset[str] = frozenset()
    """Names of branches whose results are reused in the next call."""

    steps: tuple[tuple[str, ObservedStep], ...] = ()
    """Name of each native call and routine in the text, with its step; empty with the detail ``runs``. Native calls
    take the shapes of the buffers too."""

    computed: tuple[Computed, ...] = ()
    """Tensors that are shown; empty but for the detail ``values``."""

    copies: tuple[FrozenCopy, ...] | None = None
    """All results of a frozen region on a GPU as copies of its arguments, empty where one is none; ``None`` for any
    other program."""

    @property
    def listing(self) -> str:
        """Sources of all functions, branches before their callers."""
        return "\n\n".join((*(branch.listing for branch in self.branches), self.text))
