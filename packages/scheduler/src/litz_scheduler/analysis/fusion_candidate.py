"""A fusion group under construction: its operations, rewritten over common axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from litz_ir.device import Device
from litz_ir.loops import Axis, Operation, Pointwise, Reduction, Scan, Scatter
from litz_ir.scalar import Expr, Load, loads, substitute_expr, transform
from litz_ir.symbols import (
    Simplifier,
    Size,
    Symbol,
    SymbolTable,
    add,
    free_symbols,
    mul,
    substitute,
    symbol,
)
from litz_scheduler.analysis.graph_facts import axes_of, axis_ranges, element_of, named
from litz_scheduler.analysis.iteration_space import collapsed_axes, space_of


@dataclass(frozen=True, slots=True)
class ScheduledNode:
    """An operation rewritten over the axes of its fusion candidate (:class:`litz_ir.fused.group.Member`)."""

    operation: Operation
    """The operation as the graph has it."""
    phase: int
    """The phase of the kernel in which it runs."""
    inner: bool
    """True where it runs over the inner axes too, false where once for each outer point."""
    index: tuple[Size, ...]
    """The element of its results at a point of the candidate's axes."""
    bodies: tuple[Expr, ...]
    """Its bodies over the candidate's axes."""
    loads: tuple[Load, ...]
    """The distinct loads of the bodies."""

    @property
    def loop_position(self) -> tuple[int, bool]:
        """The order inside the kernel: by phase, and in each phase outer operations before inner ones."""
        return self.phase, self.inner

    @property
    def reduces(self) -> bool:
        """True for a reduction."""
        return isinstance(self.operation, Reduction)

    @property
    def scans(self) -> bool:
        """True for a scan, whose results are at the points of the inner axes."""
        return isinstance(self.operation, Scan)

    @property
    def ends_phase(self) -> bool:
        """True where only later phases may read the results: those of a reduction or a scan."""
        return self.reduces or self.scans

    def element(self, name: str) -> tuple[Size, ...]:
        """Return the element of the result ``name`` that is computed at a point; 0 along its dimensions of size 1."""
        value = next(value for value in self.operation.results if value.name == name)
        return element_of(value, self.index)


@dataclass(slots=True)
class FusionCandidate:
    """A fusion group while operations are added to it."""

    number: int
    """The number of the group, in order of creation."""
    device: Device
    """The device of all its values."""
    outer: tuple[Axis, ...] = ()
    """The outer axes."""
    inner: tuple[Axis, ...] = ()
    """The inner axes, such as those of a reduction."""
    members: list[ScheduledNode] = field(default_factory=list)
    """The operations, in order."""
    fusible: bool = False
    """False for a group that no operation can be fused into."""
    reads: set[str] = field(default_factory=set)
    """The values that members read, those of other members included."""
    size: int = 0
    """The number of nodes in the bodies."""
    position: int = 0
    """The position in the graph of the last member."""
    is_matmul: bool = False
    """True where the first member is a matmul: the others use its result, or contain the same nested reductions."""

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The outer and inner axes."""
        return self.outer + self.inner

    def defined(self) -> dict[str, ScheduledNode]:
        """Return the member that defines each value of the group, by value name."""
        return {value.name: node for node in self.members for value in node.operation.results}


def axes_named(prefix: str, sizes: Sequence[Size]) -> tuple[Axis, ...]:
    """Return axes ``prefix0``, ``prefix1``, … of these sizes."""
    return tuple(Axis(f"{prefix}{k}", size) for k, size in enumerate(sizes))


def sizes_of(axes: Sequence[Axis]) -> tuple[Size, ...]:
    """Return the extents of axes."""
    return tuple(axis.size for axis in axes)


def new_candidate(operation: Operation, number: int, device: Device, symbols: SymbolTable) -> FusionCandidate:
    """Return a candidate of one pointwise operation, reduction or scan."""
    space = space_of(operation)
    outer = axes_named("i", sizes_of(space.outer))
    inner = axes_named("r", sizes_of(space.inner))
    terms = named(space.outer + space.inner, [symbol(axis.name) for axis in outer + inner])
    candidate = FusionCandidate(number, device, outer, inner, fusible=True)
    candidate.members.append(
        scheduled_node(operation, terms, 0, isinstance(operation, Reduction | Scan), outer + inner, symbols)
    )
    return candidate


def scheduled_node(
    operation: Operation,
    terms: Mapping[str, Size],
    phase: int,
    inner: bool,
    axes: tuple[Axis, ...],
    symbols: SymbolTable,
) -> ScheduledNode:
    """Return the operation with each of its axes replaced by one of ``terms`` over the candidate's ``axes``."""
    assert isinstance(operation, Pointwise | Reduction | Scan | Scatter)
    mapping = {**collapsed_axes(axes_of(operation)), **terms}
    simplifier = Simplifier(axis_ranges(axes, symbols))
    result_axes = list(operation.axes)
    if isinstance(operation, Scan):
        result_axes.insert(operation.dimension, operation.scan_axis)
    written = (
        operation.index if isinstance(operation, Scatter) else [symbol(axis.name) for axis in result_axes]
    )
    index = tuple(simplifier.simplify(substitute(term, mapping)) for term in written)
    bodies = rewritten(operation.bodies, mapping, simplifier)
    return ScheduledNode(operation, phase, inner, index, bodies, loads(*bodies))


def position_in_row(written: Sequence[Size], read: Sequence[Size], axes: Sequence[Axis]) -> Size | None:
    """Return the point of a row at which ``read`` is, of a row whose points have the indices ``written``.

    ``axes`` are the inner axes; the row is along a single dimension, in their order. Returns ``None`` for an index
    outside that row.
    """
    point, names = row_point(axes), {axis.name for axis in axes}
    along = [k for k, term in enumerate(written) if names & free_symbols(term)]
    others = [k for k in range(len(written)) if k not in along]
    if len(along) != 1 or written[along[0]] != point or any(written[k] != read[k] for k in others):
        return None
    return read[along[0]]


def row_point(axes: Sequence[Axis]) -> Size:
    """Return the position of a point of the inner ``axes`` in their row."""
    position: Size = 0
    for axis in axes:
        position = add(mul(position, axis.size), symbol(axis.name))
    return position


def rewritten(
    bodies: Sequence[Expr], mapping: Mapping[str, Size], simplifier: Simplifier
) -> tuple[Expr, ...]:
    """Return the bodies with axes replaced by terms and index terms simplified."""
    if all(isinstance(term, Symbol) and term.name == name for name, term in mapping.items()):
        return tuple(bodies)
    moved = (substitute_expr(body, mapping) for body in bodies)
    return tuple(transform(body, lambda e: e, simplifier.simplify) for body in moved)
