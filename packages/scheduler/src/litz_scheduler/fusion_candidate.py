"""A group while it is being built: the operations so far, seen over shared axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from litz_ir.device import Device
from litz_ir.loops import Axis, Operation, Pointwise, Reduction
from litz_ir.scalar import Expr, Load, loads, substitute_expr, transform
from litz_ir.symbols import Simplifier, Size, Symbol, SymbolTable, symbol
from litz_scheduler.graph_facts import axis_ranges, element_of, named
from litz_scheduler.iteration_space import collapsed_axes, space_of


@dataclass(frozen=True, slots=True)
class ScheduledNode:
    """An operation over its group's axes; the fields are those of ``litz_ir.fused.group.Member``, and what the bodies
    load."""

    operation: Operation
    phase: int
    inner: bool
    index: tuple[Size, ...]
    bodies: tuple[Expr, ...]
    loads: tuple[Load, ...]

    @property
    def loop_position(self) -> tuple[int, bool]:
        """When it runs inside the kernel: in each phase, what is outer runs before what is inner."""
        return self.phase, self.inner

    @property
    def reduces(self) -> bool:
        return isinstance(self.operation, Reduction)

    def element(self, name: str) -> tuple[Size, ...]:
        """Where the operation puts what it computes in its result ``name``: at 0 where that has one element."""
        value = next(value for value in self.operation.results if value.name == name)
        return element_of(value, self.index)


@dataclass(slots=True)
class FusionCandidate:
    """``fusible`` is false for a group that nothing may join; ``reads`` are the values that members read, each
    other's included; ``size`` counts the nodes of their bodies; ``position`` is that of the member that comes last in
    the graph. ``is_matmul`` is true where the first member is a product of matrices: the others then use its result,
    or hold the products that it holds."""

    number: int
    device: Device
    outer: tuple[Axis, ...] = ()
    inner: tuple[Axis, ...] = ()
    members: list[ScheduledNode] = field(default_factory=list)
    fusible: bool = False
    reads: set[str] = field(default_factory=set)
    size: int = 0
    position: int = 0
    is_matmul: bool = False

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.outer + self.inner

    def defined(self) -> dict[str, ScheduledNode]:
        """The values that the members define."""
        return {value.name: seen for seen in self.members for value in seen.operation.results}


def axes_named(prefix: str, sizes: Sequence[Size]) -> tuple[Axis, ...]:
    """Axes ``prefix0``, ``prefix1``, … of these sizes."""
    return tuple(Axis(f"{prefix}{k}", size) for k, size in enumerate(sizes))


def sizes_of(axes: Sequence[Axis]) -> tuple[Size, ...]:
    """The extents of axes."""
    return tuple(axis.size for axis in axes)


def new_candidate(operation: Operation, number: int, device: Device, symbols: SymbolTable) -> FusionCandidate:
    """A group of one pointwise operation or reduction."""
    space = space_of(operation)
    outer = axes_named("i", sizes_of(space.outer))
    inner = axes_named("r", sizes_of(space.inner))
    own = named(space.outer + space.inner, [symbol(axis.name) for axis in outer + inner])
    draft = FusionCandidate(number, device, outer, inner, fusible=True)
    draft.members.append(
        scheduled_node(operation, own, 0, isinstance(operation, Reduction), outer + inner, symbols)
    )
    return draft


def scheduled_node(
    operation: Operation,
    own: Mapping[str, Size],
    phase: int,
    inner: bool,
    axes: tuple[Axis, ...],
    symbols: SymbolTable,
) -> ScheduledNode:
    """The operation with its axes replaced by ``own`` terms over the group's ``axes``."""
    assert isinstance(operation, Pointwise | Reduction)
    every = operation.axes + (operation.reduce_axes if isinstance(operation, Reduction) else ())
    mapping = {**collapsed_axes(every), **own}
    simplifier = Simplifier(axis_ranges(axes, symbols))
    index = tuple(simplifier.simplify(mapping[axis.name]) for axis in operation.axes)
    bodies = rewritten(operation.bodies, mapping, simplifier)
    return ScheduledNode(operation, phase, inner, index, bodies, loads(*bodies))


def rewritten(
    bodies: Sequence[Expr], mapping: Mapping[str, Size], simplifier: Simplifier
) -> tuple[Expr, ...]:
    """The bodies with axes replaced and their index terms simplified."""
    if all(isinstance(term, Symbol) and term.name == name for name, term in mapping.items()):
        return tuple(bodies)
    moved = (substitute_expr(body, mapping) for body in bodies)
    return tuple(transform(body, lambda e: e, simplifier.simplify) for body in moved)
