"""Which loops can be walked together: how the points of a group and of a newcomer are numbered alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from litz_ir.loops import Axis, Operation, Pointwise, Reduction
from litz_ir.scalar import loads
from litz_ir.symbols import (
    Simplifier,
    Size,
    Symbol,
    SymbolTable,
    Term,
    coefficient,
    free_symbols,
    substitute,
    symbol,
)
from litz_scheduler.fusion_candidate import FusionCandidate, ScheduledNode, axes_named, rewritten, sizes_of
from litz_scheduler.graph_facts import axis_ranges, named
from litz_scheduler.iteration_space import IterationSpace, refine, space_of


@dataclass(frozen=True, slots=True)
class Alignment:
    """How a group and a newcomer come to share axes: the group's new axes, the terms that its old axes become, which
    old members turn from outer to inner, and the newcomer's own axes as terms."""

    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    old: Mapping[str, Size]
    promote: bool
    own: Mapping[str, Size]
    own_inner: bool


def alignments(draft: FusionCandidate, operation: Pointwise | Reduction) -> Iterator[Alignment]:
    """The ways in which an operation could join, best first."""
    for space in _spaces(draft, operation):
        found: list[Alignment | None] = []
        if not draft.inner:
            if isinstance(operation, Reduction):
                found.append(_split_group(draft, space))
                found.append(_as_read(draft, space, operation))
                found.append(_same_outer(draft, space, inner=sizes_of(space.inner)))
            else:
                found.append(_same_outer(draft, space, inner=None))
        elif isinstance(operation, Reduction):
            found.append(_both(draft, space.outer, space.inner))
        else:
            found.append(_whole(draft, space))
            found.append(_same_outer(draft, space, inner=None))
            found.append(_of_rows(draft, space, operation))
        yield from (alignment for alignment in found if alignment is not None)


def _spaces(draft: FusionCandidate, operation: Pointwise | Reduction) -> Iterator[IterationSpace]:
    space = space_of(operation)
    other = _reordered(space, operation, draft)
    if other is not None:
        yield other
    yield space


def _same_outer(
    draft: FusionCandidate, space: IterationSpace, inner: tuple[Size, ...] | None
) -> Alignment | None:
    fit = refine(sizes_of(draft.outer), sizes_of(space.outer), "i")
    if fit is None:
        return None
    old = named(draft.outer, fit.first)
    own = named(space.outer, fit.second)
    inner_axes = draft.inner
    if inner is not None:
        inner_axes = axes_named("r", inner)
        own |= named(space.inner, [symbol(a.name) for a in inner_axes])
    return Alignment(axes_named("i", fit.axes), inner_axes, old, False, own, inner is not None)


def _of_rows(draft: FusionCandidate, space: IterationSpace, operation: Pointwise) -> Alignment | None:
    """A newcomer that reads of a group what does not vary along some of its axes: it runs over the others."""
    defined = draft.defined()
    reads = [load.buffer for load in loads(*operation.bodies) if load.buffer in defined]
    known = {name for read in reads for term in defined[read].element(read) for name in free_symbols(term)}
    kept = tuple(axis for axis in draft.outer if axis.name in known)
    fit = refine(sizes_of(kept), sizes_of(space.outer), "i") if reads and kept != draft.outer else None
    if fit is None:
        return None
    rest = tuple(axis for axis in draft.outer if axis not in kept)
    outer = axes_named("i", (*fit.axes, *sizes_of(rest)))
    old = named(kept, fit.first) | named(rest, [symbol(axis.name) for axis in outer[len(fit.axes) :]])
    return Alignment(outer, draft.inner, old, False, named(space.outer, fit.second), False)


def _split_group(draft: FusionCandidate, space: IterationSpace) -> Alignment | None:
    """A pointwise group over the points that a reduction reduces: its axes fall into outer and inner ones."""
    for cut in range(len(draft.outer) + 1):
        head, tail = draft.outer[:cut], draft.outer[cut:]
        outer = refine(sizes_of(head), sizes_of(space.outer), "i")
        inner = refine(sizes_of(tail), sizes_of(space.inner), "r")
        if outer is not None and inner is not None:
            old = named(head, outer.first) | named(tail, inner.first)
            own = named(space.outer, outer.second) | named(space.inner, inner.second)
            return Alignment(axes_named("i", outer.axes), axes_named("r", inner.axes), old, True, own, True)
    return None


def _as_read(draft: FusionCandidate, space: IterationSpace, operation: Reduction) -> Alignment | None:
    """A pointwise group whose axes fall into outer and inner ones in another order than their own: the order in which
    a reduction reads what the group computes (per channel, say)."""
    sizes = {axis.name: axis.size for axis in space.outer + space.inner}
    defined = draft.defined()
    old: dict[str, Size] = {}
    for load in loads(*operation.bodies):
        producer = defined.get(load.buffer)
        if producer is None:
            continue
        for mine, theirs in zip(producer.index, load.index, strict=True):
            if (
                isinstance(mine, Symbol)
                and isinstance(theirs, Symbol)
                and old.setdefault(mine.name, theirs) == theirs
            ):
                continue
            if mine != theirs:
                return None
    taken = {term.name for term in old.values() if isinstance(term, Symbol)}
    same = all(axis.name in old and sizes.get(str(old[axis.name])) == axis.size for axis in draft.outer)
    if not same or taken != sizes.keys() or len(taken) != len(draft.outer):
        return None
    outer, inner = axes_named("i", sizes_of(space.outer)), axes_named("r", sizes_of(space.inner))
    own = named(space.outer + space.inner, [symbol(axis.name) for axis in outer + inner])
    return Alignment(outer, inner, {name: own[str(term)] for name, term in old.items()}, True, own, True)


def _both(
    draft: FusionCandidate, outer_axes: tuple[Axis, ...], inner_axes: tuple[Axis, ...]
) -> Alignment | None:
    outer = refine(sizes_of(draft.outer), sizes_of(outer_axes), "i")
    inner = refine(sizes_of(draft.inner), sizes_of(inner_axes), "r")
    if outer is None or inner is None:
        return None
    old = {**named(draft.outer, outer.first), **named(draft.inner, inner.first)}
    own = {**named(outer_axes, outer.second), **named(inner_axes, inner.second)}
    return Alignment(axes_named("i", outer.axes), axes_named("r", inner.axes), old, False, own, True)


def _whole(draft: FusionCandidate, space: IterationSpace) -> Alignment | None:
    """A pointwise newcomer over outer and inner axes: one of its axes starts the inner part."""
    for cut in range(len(space.outer) + 1):
        found = _both(draft, space.outer[:cut], space.outer[cut:])
        if found is not None:
            return found
    return None


def _reordered(space: IterationSpace, operation: Operation, draft: FusionCandidate) -> IterationSpace | None:
    """The newcomer's axes in the order in which the group walks what it reads of it (per channel, say), the others
    last; ``None`` when that changes nothing. Of a product of matrices, whose tiles may be stored in any order, what is
    read may also have its rows or columns divided into several axes (heads, say)."""
    if not isinstance(operation, Pointwise):
        return None
    defined = draft.defined()
    place = {axis.name: k for k, axis in enumerate(draft.axes)}
    known: dict[str, tuple[int, int]] = {}
    for load in loads(*operation.bodies):
        seen = defined.get(load.buffer)
        for mine, theirs in zip(seen.index, load.index, strict=True) if seen is not None else ():
            if isinstance(mine, Symbol) and isinstance(theirs, Symbol):
                known.setdefault(theirs.name, (place[mine.name], 0))
            elif draft.is_matmul and isinstance(mine, Term):
                first = min((place[name] for name in mine.free_symbols & place.keys()), default=len(place))
                for axis, step in _steps(theirs, space.outer):
                    known.setdefault(axis, (first, -step))
    order = tuple(sorted(space.outer, key=lambda axis: known.get(axis.name, (len(place), 0))))
    return IterationSpace(order, ()) if order != space.outer else None


def _steps(index: Size, axes: Sequence[Axis]) -> Iterator[tuple[str, int]]:
    """The axes along which an index moves by a known number of elements, and that number."""
    for axis in axes:
        step = coefficient(index, axis.name)
        if isinstance(step, int) and step:
            yield axis.name, step


def realign(draft: FusionCandidate, alignment: Alignment, symbols: SymbolTable) -> list[ScheduledNode]:
    """The members over the group's new axes."""
    unchanged = all(isinstance(t, Term) and str(t) == name for name, t in alignment.old.items())
    if unchanged and not alignment.promote:
        return list(draft.members)
    simplifier = Simplifier(axis_ranges(alignment.outer + alignment.inner, symbols))
    moved: list[ScheduledNode] = []
    for seen in draft.members:
        index = tuple(simplifier.simplify(substitute(term, alignment.old)) for term in seen.index)
        bodies = rewritten(seen.bodies, alignment.old, simplifier)
        inner = seen.inner or alignment.promote
        moved.append(ScheduledNode(seen.operation, seen.phase, inner, index, bodies, loads(*bodies)))
    return moved
