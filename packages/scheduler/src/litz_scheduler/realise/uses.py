"""Who needs a value once everything between is inlined, and until when it can be computed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from litz_ir.loops import Operation, Pointwise, Reduction, Scan, Scatter, View, stride_order
from litz_ir.scalar import Checked, Expr, indirects, loads, unconditional_loads, walk
from litz_ir.symbols import Size, Symbol, free_symbols
from litz_scheduler.graph_facts import VersionDeadlines, axes_of, is_identity

MAX_READERS = 8
"""Readers are told apart up to here; more is all the same."""


@dataclass(frozen=True, slots=True)
class Use:
    """How many elements one point of a reader needs; whether it is the element at that very point alone; whether they
    stay the same along the reader's fastest axis, so that its inner loop need not compute them; and whether all its
    points together need every element there is (``whole``), as far as is known."""

    count: int
    aligned: bool
    loop_invariant: bool = False
    whole: bool = False

    def through(self, inner: Use) -> Use:
        """This use of something that is computed from ``inner``: how the reader needs what that needs."""
        steady = self.loop_invariant or (self.aligned and inner.loop_invariant)
        whole = self.whole and inner.whole
        return Use(self.count * inner.count, self.aligned and inner.aligned, steady, whole)

    def merged_with(self, other: Use) -> Use:
        """This use and another one by the same reader."""
        steady, whole = self.loop_invariant and other.loop_invariant, self.whole or other.whole
        return Use(self.count + other.count, self.aligned and other.aligned, steady, whole)


@dataclass(slots=True)
class Uses:
    """The kept operations that need a value, by position: at most :data:`MAX_READERS`, ``last`` the last of all of
    them."""

    readers: dict[int, Use] = field(default_factory=dict)
    last: int = -1
    truncated: bool = False

    def add(self, position: int, use: Use) -> None:
        """Count another use."""
        self.last = max(self.last, position)
        known = self.readers.get(position)
        if known is not None:
            self.readers[position] = known.merged_with(use)
        elif len(self.readers) < MAX_READERS:
            self.readers[position] = use
        else:
            self.truncated = True

    @property
    def count(self) -> int:
        """Elements needed in all."""
        return sum(use.count for use in self.readers.values())

    @property
    def loop_invariant(self) -> bool:
        """True when no reader's inner loop would compute the value."""
        return (
            bool(self.readers)
            and not self.truncated
            and all(use.loop_invariant for use in self.readers.values())
        )


def direct_uses(operation: Operation, shapes: Mapping[str, tuple[Size, ...]] | None = None) -> dict[str, Use]:
    """What an operation reads, and how; ``shapes`` of what it reads tell what it reads as a whole."""
    found: dict[str, Use] = {}
    axes = axes_of(operation)
    sizes = {axis.name: axis.size for axis in axes}
    fastest = fastest_axis(operation)

    def use(name: str, index: tuple[Size, ...], always: bool) -> Use:
        moves = fastest is None or any(fastest in free_symbols(term) for term in index)
        whole = always and shapes is not None and _covers(index, shapes.get(name), sizes)
        return Use(1, is_identity(index, axes), not moves, whole)

    bodies = loop_bodies(operation)
    unconditional = set(unconditional_loads(bodies))
    for load in loads(*bodies):
        own, known = use(load.buffer, load.index, load in unconditional), found.get(load.buffer)
        found[load.buffer] = own if known is None else known.merged_with(own)
    if isinstance(operation, View):
        found[operation.base] = use(operation.base, operation.index, True)
    for name in operation.reads:
        found.setdefault(name, Use(1, False))
    return found


def _covers(index: tuple[Size, ...], shape: tuple[Size, ...] | None, sizes: Mapping[str, Size]) -> bool:
    """True when an index reaches every element: each dimension has an axis of its size to itself."""
    if shape is None:
        return False
    named = [term.name for term in index if isinstance(term, Symbol)]
    return len(set(named)) == len(named) and all(
        sizes.get(term.name) == size if isinstance(term, Symbol) else term == 0 and size == 1
        for term, size in zip(index, shape, strict=True)
    )


def may_raise(body: Expr) -> bool:
    """True when evaluating the body may report a fault."""
    return any(
        isinstance(node, Checked) or any(atom.check == "raised" for atom in indirects(node))
        for node in walk(body)
    )


def fastest_axis(operation: Operation) -> str | None:
    """The axis that the inner loop will run along: the one along which memory is contiguous, as eager lays it out."""
    axes = axes_of(operation)
    if isinstance(operation, Pointwise):
        axes = tuple(axes[dim] for dim in stride_order(operation.results[0].type.layout))
    return next((axis.name for axis in reversed(axes) if axis.size != 1), None)


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
    operations: Collection[Operation], versions: VersionDeadlines, kept: Collection[str]
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
