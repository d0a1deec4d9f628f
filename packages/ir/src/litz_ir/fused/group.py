"""The fused graph: fusion groups, each of which runs as one kernel, and the storage class of each value.

It is the same for all targets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from litz_ir.fused.decision import Decision
from litz_ir.loops.nodes import Axis, LoopGraph
from litz_ir.scalar.node import Expr
from litz_ir.symbols.term import Size

StorageClass = Literal["inline", "register", "scratch", "store"]
"""Storage of a value that a group defines.

``inline``: recomputed in each reader; ``register``: held in a register; ``scratch``: in an array for each outer point;
``store``: written to memory.
"""


@dataclass(frozen=True, slots=True)
class Member:
    """An operation of a group, rewritten over the group's axes.

    Only pointwise operations, reductions, and scans that may be fused have an index and bodies.
    """

    operation: str
    """Name of the operation."""
    phase: int = 0
    """Number of the loop nest inside the kernel, which members of one phase have in common; phase 0 runs first."""
    inner: bool = False
    """True if the operation runs over the inner axes too, as reductions and scans always do."""
    index: tuple[Size, ...] = ()
    """Logical index of the results, as terms over the group's axes."""
    bodies: tuple[Expr, ...] = ()
    """Bodies over the group's axes."""


@dataclass(frozen=True, slots=True)
class Group:
    """Operations that run over one iteration space in one kernel. A group of one call has no axes."""

    name: str
    """Name, unique in the graph."""
    outer: tuple[Axis, ...]
    """Axes that all members run over."""
    inner: tuple[Axis, ...]
    """Axes that some members reduce over or map over inside each outer point."""
    members: tuple[Member, ...]
    """Operations of the group, in program order."""
    storage_classes: tuple[tuple[str, StorageClass], ...]
    """Storage class of each value that the group defines."""
    reads: tuple[str, ...]
    """Buffers that the group reads and does not define."""
    writes: tuple[str, ...]
    """Values that the group stores to memory."""


@dataclass(frozen=True, slots=True)
class FusedGraph:
    """A loop graph after inlining, its groups in the order in which they run, and the decisions that made them."""

    graph: LoopGraph
    """The loop graph."""
    groups: tuple[Group, ...]
    """Fusion groups in the order in which they run."""
    decisions: tuple[Decision, ...] = field(default=(), compare=False)
    """Decisions of the compiler; not part of the graph's identity."""
