"""A group while it is being built: the operations so far, seen over shared axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from litz_ir.device import Device
from litz_ir.loops import Axis, Operation, Pointwise, Reduction
from litz_ir.scalar import Expr, Load, loads, substitute_expr, transform
from litz_ir.symbols import Simplifier, Size, Symbol, SymbolTable, symbol
from litz_scheduler.domain import collapsed_axes, space_of
from litz_scheduler.graph import axis_ranges, element_of, named


@dataclass(frozen=True, slots=True)
class Seen:
    """An operation over its group's axes; the fields are those of ``litz_ir.fused.group.Member``, and what the bodies
    load."""

    operation: Operation
    phase: int
    inner: bool
    index: tuple[Size, ...]
    bodies: tuple[Expr, ...]
    loads: tuple[Load, ...]

    @property
    def at(self) -> tuple[int, bool]:
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
class Draft:
    """``loops`` is false for a group that nothing may join; ``reads`` are the values that members read, each other's
    included; ``size`` counts the nodes of their bodies; ``position`` is that of the member that comes last in the
    graph. ``product`` is true where the first member is a product of matrices: the others then use its result, or hold
    the products that it holds."""

    number: int
    device: Device
    outer: tuple[Axis, ...] = ()
    inner: tuple[Axis, ...] = ()
    members: list[Seen] = field(default_factory=list)
    loops: bool = False
    reads: set[str] = field(default_factory=set)
    size: int = 0
    position: int = 0
    product: bool = False

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.outer + self.inner

    def defined(self) -> dict[str, Seen]:
        """The values that the members define."""
        return {value.name: seen for seen in self.members for value in seen.operation.results}


def axes_named(prefix: str, sizes: Sequence[Size]) -> tuple[Axis, ...]:
    """Axes ``prefix0``, ``prefix1``, … of these sizes."""
    return tuple(Axis(f"{prefix}{k}", size) for k, size in enumerate(sizes))


def sizes_of(axes: Sequence[Axis]) -> tuple[Size, ...]:
    """The extents of axes."""
    return tuple(axis.size for axis in axes)


def start(operation: Operation, number: int, device: Device, symbols: SymbolTable) -> Draft:
    """A group of one pointwise operation or reduction."""
    space = space_of(operation)
    outer = axes_named("i", sizes_of(space.outer))
    inner = axes_named("r", sizes_of(space.inner))
    own = named(space.outer + space.inner, [symbol(axis.name) for axis in outer + inner])
    draft = Draft(number, device, outer, inner, loops=True)
    draft.members.append(see(operation, own, 0, isinstance(operation, Reduction), outer + inner, symbols))
    return draft


def see(
    operation: Operation,
    own: Mapping[str, Size],
    phase: int,
    inner: bool,
    axes: tuple[Axis, ...],
    symbols: SymbolTable,
) -> Seen:
    """The operation with its axes replaced by ``own`` terms over the group's ``axes``."""
    assert isinstance(operation, Pointwise | Reduction)
    every = operation.axes + (operation.reduce_axes if isinstance(operation, Reduction) else ())
    mapping = {**collapsed_axes(every), **own}
    simplifier = Simplifier(axis_ranges(axes, symbols))
    index = tuple(simplifier.simplify(mapping[axis.name]) for axis in operation.axes)
    bodies = rewritten(operation.bodies, mapping, simplifier)
    return Seen(operation, phase, inner, index, bodies, loads(*bodies))


def rewritten(
    bodies: Sequence[Expr], mapping: Mapping[str, Size], simplifier: Simplifier
) -> tuple[Expr, ...]:
    """The bodies with axes replaced and their index terms simplified."""
    if all(isinstance(term, Symbol) and term.name == name for name, term in mapping.items()):
        return tuple(bodies)
    moved = (substitute_expr(body, mapping) for body in bodies)
    return tuple(transform(body, lambda e: e, simplifier.simplify) for body in moved)
