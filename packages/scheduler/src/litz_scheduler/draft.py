"""A group while it is being built: the operations so far, seen over shared axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from litz_ir.device import Device
from litz_ir.loops.nodes import Axis, Operation, Pointwise, Reduction
from litz_ir.scalar.expr import Expr, loads, substitute_expr, transform
from litz_ir.symbols.ranges import Range
from litz_ir.symbols.simplify import simplify
from litz_ir.symbols.table import SymbolTable
from litz_ir.symbols.term import Size, Term, substitute, symbol

from litz_scheduler.domain import Space, collapsed_axes, refine, space_of
from litz_scheduler.graph import axis_ranges


@dataclass(frozen=True, slots=True)
class Seen:
    """An operation over its group's axes; the fields are those of ``litz_ir.fused.group.Member``."""

    operation: Operation
    phase: int
    inner: bool
    index: tuple[Size, ...]
    bodies: tuple[Expr, ...]

    @property
    def reduces(self) -> bool:
        return isinstance(self.operation, Reduction)


@dataclass(slots=True)
class Draft:
    """``number`` is its bit in the ancestor masks; ``parents`` are the groups it depends on directly."""

    number: int
    device: Device
    outer: tuple[Axis, ...] = ()
    inner: tuple[Axis, ...] = ()
    members: list[Seen] = field(default_factory=list)
    loops: bool = False
    parents: set[int] = field(default_factory=set)
    ancestors: int = 0
    size: int = 0
    position: int = 0

    def defined(self) -> dict[str, Seen]:
        """The values that the members define."""
        return {value.name: seen for seen in self.members for value in seen.operation.results}


@dataclass(frozen=True, slots=True)
class Alignment:
    """How a group and a newcomer come to share axes: the group's new axes, the terms that its old axes become, which
    old members turn from outer to inner, and the newcomer's own axes as terms."""

    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    old: dict[str, Size]
    promote: bool
    own: dict[str, Size]
    own_inner: bool


def _axes(prefix: str, sizes: Sequence[Size]) -> tuple[Axis, ...]:
    return tuple(Axis(f"{prefix}{k}", size) for k, size in enumerate(sizes))


def _sizes(axes: Sequence[Axis]) -> tuple[Size, ...]:
    return tuple(axis.size for axis in axes)


def _named(axes: Sequence[Axis], terms: Sequence[Size]) -> dict[str, Size]:
    return {axis.name: term for axis, term in zip(axes, terms, strict=True)}


def start(operation: Operation, number: int, device: Device, position: int, symbols: SymbolTable) -> Draft:
    """A group of one pointwise operation or reduction."""
    space = space_of(operation)
    outer = _axes("i", _sizes(space.outer))
    inner = _axes("r", _sizes(space.inner))
    own = _named(space.outer, [symbol(a.name) for a in outer]) | _named(space.inner, [symbol(a.name) for a in inner])
    draft = Draft(number, device, outer, inner, loops=True, position=position)
    draft.members.append(see(operation, own, 0, isinstance(operation, Reduction), outer + inner, symbols))
    return draft


def see(
    operation: Operation, own: dict[str, Size], phase: int, inner: bool, axes: tuple[Axis, ...], symbols: SymbolTable
) -> Seen:
    """The operation with its axes replaced by ``own`` terms over the group's ``axes``."""
    assert isinstance(operation, Pointwise | Reduction)
    every = operation.axes + (operation.reduce_axes if isinstance(operation, Reduction) else ())
    mapping = collapsed_axes(every) | own
    ranges = axis_ranges(axes, symbols)
    index = tuple(mapping[axis.name] for axis in operation.axes)
    return Seen(operation, phase, inner, index, tuple(rewrite(b, mapping, ranges) for b in operation.bodies))


def rewrite(body: Expr, mapping: dict[str, Size], ranges: dict[str, Range]) -> Expr:
    """The body with axes replaced and its index terms simplified."""
    if all(isinstance(term, Term) and str(term) == name for name, term in mapping.items()):
        return body
    return transform(substitute_expr(body, mapping), lambda e: e, lambda t: simplify(t, ranges))


def alignments(draft: Draft, space: Space, reduces: bool) -> list[Alignment]:
    """The ways in which an operation over ``space`` could join, best first."""
    found: list[Alignment | None] = []
    if not draft.inner:
        if reduces:
            found.append(_split_group(draft, space))
            found.append(_same_outer(draft, space, inner=_sizes(space.inner)))
        else:
            found.append(_same_outer(draft, space, inner=None))
    elif reduces:
        found.append(_both(draft, _sizes(space.outer), _sizes(space.inner), space.outer, space.inner))
    else:
        found.append(_whole(draft, space))
        found.append(_same_outer(draft, space, inner=None))
    return [a for a in found if a is not None]


def _same_outer(draft: Draft, space: Space, inner: tuple[Size, ...] | None) -> Alignment | None:
    fit = refine(_sizes(draft.outer), _sizes(space.outer), "i")
    if fit is None:
        return None
    old = _named(draft.outer, fit.first)
    own = _named(space.outer, fit.second)
    inner_axes = draft.inner
    if inner is not None:
        inner_axes = _axes("r", inner)
        own |= _named(space.inner, [symbol(a.name) for a in inner_axes])
    return Alignment(_axes("i", fit.axes), inner_axes, old, False, own, inner is not None)


def _split_group(draft: Draft, space: Space) -> Alignment | None:
    """A pointwise group over the points that a reduction reduces: its axes fall into outer and inner ones."""
    for cut in range(len(draft.outer) + 1):
        head, tail = draft.outer[:cut], draft.outer[cut:]
        outer = refine(_sizes(head), _sizes(space.outer), "i")
        inner = refine(_sizes(tail), _sizes(space.inner), "r")
        if outer is not None and inner is not None:
            old = _named(head, outer.first) | _named(tail, inner.first)
            own = _named(space.outer, outer.second) | _named(space.inner, inner.second)
            return Alignment(_axes("i", outer.axes), _axes("r", inner.axes), old, True, own, True)
    return None


def _both(
    draft: Draft, outer_sizes: tuple[Size, ...], inner_sizes: tuple[Size, ...],
    outer_axes: Sequence[Axis], inner_axes: Sequence[Axis],
) -> Alignment | None:  # fmt: skip
    outer = refine(_sizes(draft.outer), outer_sizes, "i")
    inner = refine(_sizes(draft.inner), inner_sizes, "r")
    if outer is None or inner is None:
        return None
    old = _named(draft.outer, outer.first) | _named(draft.inner, inner.first)
    own = _named(outer_axes, outer.second) | _named(inner_axes, inner.second)
    return Alignment(_axes("i", outer.axes), _axes("r", inner.axes), old, False, own, True)


def _whole(draft: Draft, space: Space) -> Alignment | None:
    """A pointwise newcomer over outer and inner axes: one of its axes starts the inner part."""
    for cut in range(len(space.outer) + 1):
        head, tail = space.outer[:cut], space.outer[cut:]
        found = _both(draft, _sizes(head), _sizes(tail), head, tail)
        if found is not None:
            return found
    return None


def reordered(space: Space, operation: Operation, draft: Draft) -> Space | None:
    """The newcomer's axes with those first by which it reads what the group reduced (per channel, say); ``None`` when
    that changes nothing."""
    if not isinstance(operation, Pointwise):
        return None
    defined = draft.defined()
    for load in loads(*operation.bodies):
        seen = defined.get(load.buffer)
        if seen is not None and (seen.reduces or not seen.inner):
            first = [a for term in load.index for a in space.outer if isinstance(term, Term) and str(term) == a.name]
            rest = [a for a in space.outer if a not in first]
            order = tuple(first + rest)
            if order != space.outer and len(order) == len(space.outer):
                return Space(order, ())
    return None


def realign(draft: Draft, alignment: Alignment, symbols: SymbolTable) -> list[Seen]:
    """The members over the group's new axes."""
    unchanged = all(isinstance(t, Term) and str(t) == name for name, t in alignment.old.items())
    if unchanged and not alignment.promote:
        return list(draft.members)
    ranges = axis_ranges(alignment.outer + alignment.inner, symbols)
    moved: list[Seen] = []
    for seen in draft.members:
        index = tuple(substitute(term, alignment.old) for term in seen.index)
        bodies = tuple(rewrite(body, alignment.old, ranges) for body in seen.bodies)
        moved.append(Seen(seen.operation, seen.phase, seen.inner or alignment.promote, index, bodies))
    return moved


def phase_for(newcomer: Seen, members: Sequence[Seen]) -> int | None:
    """The first phase in which all that the newcomer reads of the group is at hand, or ``None`` when it reads another
    point of something that the group computes."""
    defined = {value.name: seen for seen in members for value in seen.operation.results}
    phase = 0
    for load in loads(*newcomer.bodies):
        producer = defined.get(load.buffer)
        if producer is None:
            continue
        if load.index != producer.index or _reads_inside(producer, newcomer):
            return None
        phase = max(phase, producer.phase + (1 if producer.reduces else 0))
    return phase


def _reads_inside(producer: Seen, newcomer: Seen) -> bool:
    """An outer value would need an inner one: there is no single point to read."""
    return producer.inner and not producer.reduces and not newcomer.inner
