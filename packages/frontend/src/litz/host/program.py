"""A host program as data: its text, and what the text takes for granted."""

from __future__ import annotations

from dataclasses import dataclass, field

from litz_ir.device import Device
from litz_ir.loops import TensorType
from litz_ir.symbols import Size


@dataclass(frozen=True, slots=True)
class MemoryLocation:
    """``offset`` bytes after the start of the buffer, or of the ``storage``, that is called ``owner``."""

    owner: str
    offset: Size = 0
    storage: bool = False


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of consecutive launches on one ``device`` that is one native call: ``buffers`` are the distinct places of
    its buffers in the order their addresses are passed, ``launches`` name the kernel, the positions of its buffers and
    its symbol terms; ``waits`` are the launches that have to see what those before them did; ``given``
    are, for each launch, the types of its buffers, None for those in memory that the program allocates."""

    name: str
    buffers: tuple[MemoryLocation, ...]
    symbols: tuple[Size, ...]
    launches: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]
    waits: tuple[bool, ...]
    given: tuple[tuple[TensorType | None, ...], ...]
    device: Device


@dataclass(frozen=True, slots=True)
class HostProgram:
    """``text`` defines the function ``name``, which takes the list of arguments; it expects ``segments``, ``externs``
    (target, name) and ``constants`` (the plan's name, the program's) as globals, and ``branches``, the programs of the
    subplans, as functions. ``frozen`` names the branches whose results are kept for the next call."""

    name: str
    text: str
    segments: tuple[Segment, ...]
    externs: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, str], ...] = ()
    branches: tuple[HostProgram, ...] = field(default=())
    frozen: frozenset[str] = frozenset()

    @property
    def listing(self) -> str:
        """The texts of all functions, branches before what calls them."""
        return "\n\n".join((*(branch.listing for branch in self.branches), self.text))
