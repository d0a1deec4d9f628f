"""The fused graph: which operations run in one kernel, and what becomes of each value. Target-neutral."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from litz_ir.fused.decision import Decision
from litz_ir.loops.nodes import Axis, LoopGraph
from litz_ir.scalar.expr import Expr
from litz_ir.symbols.term import Size

StorageClass = Literal["inline", "register", "scratch", "store"]


@dataclass(frozen=True, slots=True)
class Member:
    """An operation of a group, by its name, seen over the group's axes.

    ``index`` is the logical index of its results and ``bodies`` its bodies, both as terms over the group's axes.
    ``inner`` is true when it runs over the inner axes too (reductions and scans always do); ``phase`` orders the loops
    inside the kernel: members of one phase share one loop nest, phase 0 runs first. Only pointwise operations and
    reductions have an index and bodies.
    """

    operation: str
    phase: int = 0
    inner: bool = False
    index: tuple[Size, ...] = ()
    bodies: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Operations over one iteration space: ``outer`` axes shared by all, ``inner`` ones reduced or mapped inside.

    A group of one call has no axes. ``storage_classes`` says for every value defined inside: ``inline`` (computed
    where it is read), ``keep`` in a scalar, ``local`` in an array per outer point, or ``store`` to memory.
    """

    name: str
    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    members: tuple[Member, ...]
    storage_classes: tuple[tuple[str, StorageClass], ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FusedGraph:
    """A loop graph after inlining, its groups in the order they run, and the choices made."""

    graph: LoopGraph
    groups: tuple[Group, ...]
    decisions: tuple[Decision, ...] = field(default=(), compare=False)
