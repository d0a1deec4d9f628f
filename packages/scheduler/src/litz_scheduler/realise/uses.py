"""Who needs a value once everything between is inlined, and until when it can be computed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from litz_ir.loops.nodes import Operation, Pointwise, Reduction, Scan, Scatter, View
from litz_ir.scalar.expr import Expr, loads
from litz_scheduler.graph import Versions, axes_of, is_identity

MANY = 8
"""Readers are told apart up to here; more is all the same."""


@dataclass(frozen=True, slots=True)
class Use:
    """How many elements one point of a reader needs, and whether it is the element at that very point alone."""

    count: int
    aligned: bool


@dataclass(slots=True)
class Uses:
    """The kept operations that need a value, by position: at most :data:`MANY`, ``last`` the last of all of them."""

    readers: dict[int, Use] = field(default_factory=dict)
    last: int = -1
    crowded: bool = False

    def add(self, position: int, use: Use) -> None:
        """Count another use."""
        self.last = max(self.last, position)
        known = self.readers.get(position)
        if known is not None:
            self.readers[position] = Use(known.count + use.count, known.aligned and use.aligned)
        elif len(self.readers) < MANY:
            self.readers[position] = use
        else:
            self.crowded = True

    @property
    def count(self) -> int:
        """Elements needed in all."""
        return sum(use.count for use in self.readers.values())


def direct_uses(operation: Operation) -> dict[str, Use]:
    """What an operation reads, and how."""
    found: dict[str, Use] = {}
    for load in loads(*loop_bodies(operation)):
        known = found.get(load.buffer, Use(0, True))
        at_point = is_identity(load.index, axes_of(operation))
        found[load.buffer] = Use(known.count + 1, known.aligned and at_point)
    if isinstance(operation, View):
        found[operation.base] = Use(1, is_identity(operation.index, operation.axes))
    for name in operation.reads:
        found.setdefault(name, Use(1, False))
    return found


def loop_bodies(operation: Operation) -> tuple[Expr, ...]:
    """The bodies that are evaluated in a loop."""
    match operation:
        case Pointwise() | Reduction() | Scan():
            return operation.bodies
        case Scatter():
            return (operation.body,)
    return ()


@dataclass(frozen=True, slots=True)
class Deadline:
    """``position`` is where something that a value is computed from is overwritten. ``aligned``: it is read at the
    value's own point only, so that the loop which overwrites it may still compute the value."""

    position: int
    aligned: bool

    def sooner(self, other: Deadline | None) -> Deadline:
        """The one that comes first."""
        if other is None or self.position < other.position:
            return self
        if self.position == other.position:
            return Deadline(self.position, self.aligned and other.aligned)
        return other


def deadlines(
    operations: Collection[Operation], versions: Versions, kept: Collection[str]
) -> dict[str, Deadline]:
    """The first deadline of every view and pointwise value that has one, those ``kept`` in any case left out: they are
    computed where they stand."""
    found: dict[str, Deadline] = {}
    for operation in operations:
        if not isinstance(operation, View | Pointwise) or operation.name in kept:
            continue
        first: Deadline | None = None
        for name, use in direct_uses(operation).items():
            position = versions.deadline(name)
            if position is not None:
                own = Deadline(position, use.aligned and versions.replaced_at(name, position))
                first = own.sooner(first)
            if name in found:
                through = found[name]
                first = Deadline(through.position, through.aligned and use.aligned).sooner(first)
        if first is not None:
            found[operation.name] = first
    return found
