"""The fused graph: which operations run in one kernel, and what becomes of each value. Target-neutral."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from litz_ir.fused.decision import Decision
from litz_ir.loops.nodes import Axis, LoopGraph

Fate = Literal["inline", "keep", "local", "store"]


@dataclass(frozen=True, slots=True)
class Member:
    """An operation of a group, by its first result's name.

    ``phase`` orders the loops inside the kernel: phase 0 first; members of one phase share one loop nest.
    ``axes`` maps each of the operation's own axes to the group's: pairs of (axis name, term over the group's axes) are
    already applied to the operation's bodies, so this records only which of the group's inner axes it runs over.
    """

    operation: str
    phase: int
    inner: bool


@dataclass(frozen=True, slots=True)
class Group:
    """Operations over one iteration space: ``outer`` axes shared by all, ``inner`` ones reduced or mapped inside.

    A group of one call has no axes. ``fates`` says for every value defined inside: ``keep`` in a scalar, ``local`` in
    an array per outer point, or ``store`` to memory; values inlined before fusion are listed in the graph's fates.
    """

    name: str
    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    members: tuple[Member, ...]
    fates: tuple[tuple[str, Fate], ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FusedGraph:
    """A loop graph (its operations rewritten over their group's axes), its groups in order, and the choices made.

    ``inlined`` names the values of the original graph that live on only in their readers' bodies.
    """

    graph: LoopGraph
    groups: tuple[Group, ...]
    inlined: tuple[str, ...]
    decisions: tuple[Decision, ...]
