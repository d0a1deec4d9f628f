"""Axis alignment: common axes for a fusion candidate and an operation that is to be fused into it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from litz_ir.loops import Axis, Operation, Pointwise, Reduction, Scan, Scatter
from litz_ir.scalar import loads, nested_reductions
from litz_ir.symbols import (
    Simplifier,
    Size,
    Symbol,
    SymbolTable,
    Term,
    add,
    coefficient,
    free_symbols,
    mul,
    product,
    substitute,
    symbol,
)
from litz_scheduler.analysis.fusion_candidate import (
    FusionCandidate,
    ScheduledNode,
    axes_named,
    rewritten,
    sizes_of,
)
from litz_scheduler.analysis.graph_facts import axis_ranges, named
from litz_scheduler.analysis.iteration_space import IterationSpace, divided, refine, space_of

Fusible = Pointwise | Reduction | Scan | Scatter
"""An operation that can be fused into a candidate."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """Common axes of a candidate and a new operation."""

    outer: tuple[Axis, ...]
    """The new outer axes of the candidate."""
    inner: tuple[Axis, ...]
    """The new inner axes of the candidate."""
    old: Mapping[str, Size]
    """A term over the new axes for each old axis of the candidate."""
    promote: bool
    """True where all old members, until now over outer axes only, become inner ones."""
    own: Mapping[str, Size]
    """A term over the new axes for each axis of the operation."""
    own_inner: bool
    """True where the operation runs over the inner axes too."""


def alignments(
    candidate: FusionCandidate, operation: Fusible, *, chunks: bool = False
) -> Iterator[Alignment]:
    """Yield the ways to align an operation with a candidate, the best first.

    A scan runs along one inner axis, which is not divided. With ``chunks`` pointwise loops also run in the chunks of
    rows of which columns are summed.
    """
    scans = isinstance(operation, Scan) or any(node.scans for node in candidate.members)
    for alignment in _alignments(candidate, operation, chunks):
        if not scans or len(alignment.inner) == 1:
            yield alignment


def _alignments(candidate: FusionCandidate, operation: Fusible, chunks: bool) -> Iterator[Alignment]:
    for space in _spaces(candidate, operation):
        found: list[Alignment | None] = []
        if not candidate.inner:
            if isinstance(operation, Reduction | Scan):
                found.append(_split_group(candidate, space))
                found.append(_as_read(candidate, space, operation))
                if chunks and isinstance(operation, Reduction):
                    found.append(_divided_group(candidate, space))
                found.append(_same_outer(candidate, space, inner=sizes_of(space.inner)))
            else:
                found.append(_same_outer(candidate, space, inner=None))
        elif isinstance(operation, Reduction | Scan):
            found.append(_both(candidate, space.outer, space.inner))
        else:
            found.append(_whole(candidate, space))
            found.append(_same_outer(candidate, space, inner=None))
            found.append(_of_rows(candidate, space, operation))
            if nested_reductions(*operation.bodies) or (chunks and _reads_elements(candidate, operation)):
                found.append(_in_chunks(candidate, space))
        yield from (alignment for alignment in found if alignment is not None)


def _spaces(candidate: FusionCandidate, operation: Fusible) -> Iterator[IterationSpace]:
    """Yield the operation's iteration space in the candidate's axis order, where that differs, then in its own."""
    space = space_of(operation)
    other = _reordered(space, operation, candidate)
    if other is not None:
        yield other
    yield space


def _same_outer(
    candidate: FusionCandidate, space: IterationSpace, inner: tuple[Size, ...] | None
) -> Alignment | None:
    """Align the outer axes; ``inner`` gives the sizes of inner axes that the operation adds, None for an outer
    operation."""
    fit = refine(sizes_of(candidate.outer), sizes_of(space.outer), "i")
    if fit is None:
        return None
    old = named(candidate.outer, fit.first)
    own = named(space.outer, fit.second)
    inner_axes = candidate.inner
    if inner is not None:
        inner_axes = axes_named("r", inner)
        own |= named(space.inner, [symbol(a.name) for a in inner_axes])
    return Alignment(axes_named("i", fit.axes), inner_axes, old, False, own, inner is not None)


def _of_rows(
    candidate: FusionCandidate, space: IterationSpace, operation: Pointwise | Scatter
) -> Alignment | None:
    """Align a pointwise operation with the outer axes along which the values that it reads vary."""
    defined = candidate.defined()
    reads = [load.buffer for load in loads(*operation.bodies) if load.buffer in defined]
    names = {name for read in reads for term in defined[read].element(read) for name in free_symbols(term)}
    varying = tuple(axis for axis in candidate.outer if axis.name in names)
    fit = (
        refine(sizes_of(varying), sizes_of(space.outer), "i")
        if reads and varying != candidate.outer
        else None
    )
    if fit is None:
        return None
    invariant = tuple(axis for axis in candidate.outer if axis not in varying)
    outer = axes_named("i", (*fit.axes, *sizes_of(invariant)))
    old = named(varying, fit.first) | named(invariant, [symbol(axis.name) for axis in outer[len(fit.axes) :]])
    return Alignment(outer, candidate.inner, old, False, named(space.outer, fit.second), False)


def _in_chunks(candidate: FusionCandidate, space: IterationSpace) -> Alignment | None:
    """Align the elements of a matrix with sums over chunks of its rows: its last axis is the last outer one."""
    *chunks, column = candidate.outer or (None,)
    *rows, last = space.outer or (None,)
    if column is None or last is None or not rows or column.size != last.size:
        return None
    counted = (*chunks, *candidate.inner)
    if product(sizes_of(counted)) != product(sizes_of(rows)):
        return None
    index: Size = 0
    for axis in counted:
        index = add(mul(index, axis.size), symbol(axis.name))
    own = divided(index, rows) | {last.name: symbol(column.name)}
    old = named(candidate.axes, [symbol(axis.name) for axis in candidate.axes])
    return Alignment(candidate.outer, candidate.inner, old, False, own, True)


def _reads_elements(candidate: FusionCandidate, operation: Fusible) -> bool:
    """Return whether an operation reads a value that the candidate computes at points of the inner axes."""
    elements = {
        value.name
        for node in candidate.members
        if node.inner and not node.ends_phase
        for value in node.operation.results
    }
    return not elements.isdisjoint(operation.reads)


def _divided_group(candidate: FusionCandidate, space: IterationSpace) -> Alignment | None:
    """Divide the rows of a pointwise candidate, whose last axes are columns, into the chunks of a sum over columns."""
    if len(space.outer) < 2 or not space.inner:
        return None
    chunk, *columns = space.outer
    counted = product((chunk.size, *sizes_of(space.inner)))
    for cut in range(1, len(candidate.outer)):
        rows, rest = candidate.outer[:cut], candidate.outer[cut:]
        fit = refine(sizes_of(rest), sizes_of(columns), "i")
        if fit is None or product(sizes_of(rows)) != counted:
            continue
        outer = axes_named("i", (chunk.size, *fit.axes))
        inner = axes_named("r", sizes_of(space.inner))
        moved = {f"i{k}": symbol(axis.name) for k, axis in enumerate(outer[1:])}
        index: Size = 0
        for axis in (outer[0], *inner):
            index = add(mul(index, axis.size), symbol(axis.name))
        old = divided(index, rows) | named(rest, [substitute(term, moved) for term in fit.first])
        own: dict[str, Size] = {chunk.name: symbol(outer[0].name)}
        own |= named(columns, [substitute(term, moved) for term in fit.second])
        own |= named(space.inner, [symbol(axis.name) for axis in inner])
        return Alignment(outer, inner, old, True, own, True)
    return None


def _split_group(candidate: FusionCandidate, space: IterationSpace) -> Alignment | None:
    """Split the axes of a pointwise candidate into outer and inner axes of a reduction over the same points."""
    for cut in range(len(candidate.outer) + 1):
        head, tail = candidate.outer[:cut], candidate.outer[cut:]
        outer = refine(sizes_of(head), sizes_of(space.outer), "i")
        inner = refine(sizes_of(tail), sizes_of(space.inner), "r")
        if outer is not None and inner is not None:
            old = named(head, outer.first) | named(tail, inner.first)
            own = named(space.outer, outer.second) | named(space.inner, inner.second)
            return Alignment(axes_named("i", outer.axes), axes_named("r", inner.axes), old, True, own, True)
    return None


def _as_read(
    candidate: FusionCandidate, space: IterationSpace, operation: Reduction | Scan
) -> Alignment | None:
    """Split the axes of a pointwise candidate in the order in which a reduction or scan reads them.

    A reduction per channel, say, has its outer axes in the middle of the candidate's.
    """
    sizes = {axis.name: axis.size for axis in space.outer + space.inner}
    defined = candidate.defined()
    old: dict[str, Size] = {}
    for load in loads(*operation.bodies):
        producer = defined.get(load.buffer)
        if producer is None:
            continue
        for own_term, read_term in zip(producer.index, load.index, strict=True):
            if (
                isinstance(own_term, Symbol)
                and isinstance(read_term, Symbol)
                and old.setdefault(own_term.name, read_term) == read_term
            ):
                continue
            if own_term != read_term:
                return None
    taken = {term.name for term in old.values() if isinstance(term, Symbol)}
    same = all(axis.name in old and sizes.get(str(old[axis.name])) == axis.size for axis in candidate.outer)
    if not same or taken != sizes.keys() or len(taken) != len(candidate.outer):
        return None
    outer, inner = axes_named("i", sizes_of(space.outer)), axes_named("r", sizes_of(space.inner))
    own = named(space.outer + space.inner, [symbol(axis.name) for axis in outer + inner])
    return Alignment(outer, inner, {name: own[str(term)] for name, term in old.items()}, True, own, True)


def _both(
    candidate: FusionCandidate, outer_axes: tuple[Axis, ...], inner_axes: tuple[Axis, ...]
) -> Alignment | None:
    """Align outer axes with outer axes and inner axes with inner axes."""
    outer = refine(sizes_of(candidate.outer), sizes_of(outer_axes), "i")
    inner = refine(sizes_of(candidate.inner), sizes_of(inner_axes), "r")
    if outer is None or inner is None:
        return None
    old = {**named(candidate.outer, outer.first), **named(candidate.inner, inner.first)}
    own = {**named(outer_axes, outer.second), **named(inner_axes, inner.second)}
    return Alignment(axes_named("i", outer.axes), axes_named("r", inner.axes), old, False, own, True)


def _whole(candidate: FusionCandidate, space: IterationSpace) -> Alignment | None:
    """Align a pointwise operation with outer and inner axes: its axes from one position on become inner."""
    for cut in range(len(space.outer) + 1):
        found = _both(candidate, space.outer[:cut], space.outer[cut:])
        if found is not None:
            return found
    return None


def _reordered(
    space: IterationSpace, operation: Operation, candidate: FusionCandidate
) -> IterationSpace | None:
    """Return the operation's axes in the order of the candidate's axes that its loads vary along.

    The other axes come last. Returns ``None`` where that changes nothing. The result of a matmul, whose tiles may be
    stored in any order, may also be read with its rows or columns divided into several axes (attention heads, say).
    """
    if not isinstance(operation, Pointwise):
        return None
    defined = candidate.defined()
    position_of = {axis.name: k for k, axis in enumerate(candidate.axes)}
    known: dict[str, tuple[int, int]] = {}
    for load in loads(*operation.bodies):
        node = defined.get(load.buffer)
        for own_term, read_term in zip(node.index, load.index, strict=True) if node is not None else ():
            if isinstance(own_term, Symbol) and isinstance(read_term, Symbol):
                known.setdefault(read_term.name, (position_of[own_term.name], 0))
            elif candidate.is_matmul and isinstance(own_term, Term):
                first = min(
                    (position_of[name] for name in own_term.free_symbols & position_of.keys()),
                    default=len(position_of),
                )
                for axis, step in _steps(read_term, space.outer):
                    known.setdefault(axis, (first, -step))
    order = tuple(sorted(space.outer, key=lambda axis: known.get(axis.name, (len(position_of), 0))))
    return IterationSpace(order, ()) if order != space.outer else None


def _steps(index: Size, axes: Sequence[Axis]) -> Iterator[tuple[str, int]]:
    """Yield each axis along which an index advances by a constant number of elements, and that number."""
    for axis in axes:
        step = coefficient(index, axis.name)
        if isinstance(step, int) and step:
            yield axis.name, step


def realign(candidate: FusionCandidate, alignment: Alignment, symbols: SymbolTable) -> list[ScheduledNode]:
    """Return the members rewritten over the new axes of the candidate."""
    unchanged = all(isinstance(t, Term) and str(t) == name for name, t in alignment.old.items())
    if unchanged and not alignment.promote:
        return list(candidate.members)
    simplifier = Simplifier(axis_ranges(alignment.outer + alignment.inner, symbols))
    moved: list[ScheduledNode] = []
    for node in candidate.members:
        index = tuple(simplifier.simplify(substitute(term, alignment.old)) for term in node.index)
        bodies = rewritten(node.bodies, alignment.old, simplifier)
        inner = node.inner or alignment.promote
        moved.append(ScheduledNode(node.operation, node.phase, inner, index, bodies, loads(*bodies)))
    return moved
