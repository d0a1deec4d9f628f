"""Uses of values through inlined operations, and the deadlines by which values must be computed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd

from litz_ir.loops import Axis, Operation, Pointwise, Reduction, Scan, Scatter, View, contiguous, stride_order
from litz_ir.scalar import (
    Checked,
    Const,
    Expr,
    Index,
    Masked,
    Op,
    indirects,
    indirects_in,
    loads,
    unconditional_loads,
    walk,
)
from litz_ir.symbols import (
    Size,
    Symbol,
    coefficient,
    extent,
    free_symbols,
    product,
    simplify,
    substitute,
)
from litz_scheduler.analysis.graph_facts import VersionDeadlines, axes_of, is_identity

MAX_READERS = 8
"""Readers are counted up to this number; values with more are treated alike."""


@dataclass(frozen=True, slots=True)
class Use:
    """The elements that a reader needs of a value."""

    count: int
    """The elements that one point of the reader needs."""
    aligned: bool
    """True where that is the element at the same point alone."""
    loop_invariant: bool = False
    """True where they do not vary along the reader's fastest axis, so that its inner loop need not compute them."""
    whole: bool = False
    """True where all points of the reader are known to need every element."""
    run: int = 1
    """The number of consecutive points of the reader that need the same elements: the reader's points, in the order of
    its result in memory, are groups of so many."""

    def through(self, inner: Use) -> Use:
        """Return the use of a value that ``inner`` reads, by the reader that this use is of."""
        invariant = self.loop_invariant or (self.aligned and inner.loop_invariant)
        whole = self.whole and inner.whole
        run = max(self.run, inner.run if self.aligned else 1)
        return Use(self.count * inner.count, self.aligned and inner.aligned, invariant, whole, run)

    def merged_with(self, other: Use) -> Use:
        """Return the sum of this use and another one by the same reader."""
        invariant, whole = self.loop_invariant and other.loop_invariant, self.whole or other.whole
        aligned, run = self.aligned and other.aligned, gcd(self.run, other.run)
        return Use(self.count + other.count, aligned, invariant, whole, run)


@dataclass(slots=True)
class Uses:
    """The operations that are not inlined and need a value."""

    readers: dict[int, Use] = field(default_factory=dict)
    """Their uses by position, for at most :data:`MAX_READERS` of them."""
    last: int = -1
    """The position of the last of all readers."""
    truncated: bool = False
    """True where there are more than :data:`MAX_READERS`."""

    def add(self, position: int, use: Use) -> None:
        """Add a use by the operation at ``position``."""
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
        """The elements that one point of each reader needs, in all."""
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
    """Return the uses of each value that an operation reads.

    ``shapes`` gives the shapes of values of which it is asked whether every element is read.
    """
    found: dict[str, Use] = {}
    axes = axes_of(operation)
    sizes = {axis.name: axis.size for axis in axes}
    fastest, ordered = fastest_axis(operation), _fastest_last(operation)

    def use(name: str, index: tuple[Size, ...], always: bool) -> Use:
        moves = fastest is None or any(fastest in free_symbols(term) for term in index)
        whole = always and shapes is not None and _covers(index, shapes.get(name), sizes)
        return Use(1, is_identity(index, axes), not moves, whole, _run(index, ordered))

    bodies = loop_bodies(operation)
    unconditional = set(unconditional_loads(bodies))
    if len(bodies) == 1:
        inside, limits = _without_padding(bodies[0])
        unconditional.update(unconditional_loads((inside,)))
        sizes |= {name: limit for name, limit in limits.items() if _at_most(limit, sizes[name])}
    for load in loads(*bodies):
        own, known = use(load.buffer, load.index, load in unconditional), found.get(load.buffer)
        found[load.buffer] = own if known is None else known.merged_with(own)
    if isinstance(operation, View):
        found[operation.base] = use(operation.base, operation.index, True)
    for name in operation.reads:
        found.setdefault(name, Use(1, False))
    return found


def _without_padding(body: Expr) -> tuple[Expr, Mapping[str, int]]:
    """Return what a body computes inside of padding, and the sizes of axes there, as far as they are constant.

    A body without padding, or of which other conditions decide what it computes, is returned itself.
    """
    if not isinstance(body, Masked):
        return body, {}
    limits: dict[str, int] = {}
    conditions = [body.cond]
    while conditions:
        match conditions.pop():
            case Op(name="bit_and", args=(one, other)):
                conditions += [one, other]
            case Op(name="lt", args=(Index(term=Symbol() as axis), Const(value=limit))) if (
                axis.name not in limits
            ):
                limits[axis.name] = int(limit)
            case _:
                return body, {}
    return body.body, limits


def _at_most(limit: int, size: Size) -> bool:
    return isinstance(size, int) and limit <= size


def _covers(index: tuple[Size, ...], shape: tuple[Size, ...] | None, sizes: Mapping[str, Size]) -> bool:
    """Return True when an index is known to reach every element: each dimension is indexed by an axis of its size
    alone, or the axes number the elements of the whole shape, as in a reshape."""
    if shape is None:
        return False
    named = [term.name for term in index if isinstance(term, Symbol)]
    return (
        len(set(named)) == len(named)
        and all(
            sizes.get(term.name) == size if isinstance(term, Symbol) else term == 0 and size == 1
            for term, size in zip(index, shape, strict=True)
        )
    ) or _numbers_all(index, shape, sizes)


def _numbers_all(index: tuple[Size, ...], shape: tuple[Size, ...], sizes: Mapping[str, Size]) -> bool:
    """Return True when an element's number, by rows, is a number whose digits are some of the axes."""
    count = product(shape)
    offset = contiguous(shape).element(index)
    names = free_symbols(offset)
    known = {name: size for name, size in sizes.items() if name in names and isinstance(size, int)}
    if not isinstance(count, int) or count == 0 or names != known.keys() or indirects_in(offset):
        return False
    offset = simplify(offset, {name: extent(size) for name, size in known.items()})
    slopes = {name: coefficient(offset, name) for name in known}
    if any(not isinstance(each, int) for each in slopes.values()):
        return False
    digits = sorted(
        (slope, known[name]) for name, slope in slopes.items() if isinstance(slope, int) and slope
    )
    below = 1
    for slope, size in digits:
        if slope != below:
            return False
        below *= size
    return below == count and substitute(offset, dict.fromkeys(known, 0)) == 0


def may_raise(body: Expr) -> bool:
    """Return True when evaluation of the body may report a fault."""
    return any(
        isinstance(node, Checked) or any(atom.check == "raised" for atom in indirects(node))
        for node in walk(body)
    )


def fastest_axis(operation: Operation) -> str | None:
    """Return the axis of the innermost loop: the one along which the result is contiguous in eager's layout."""
    return next((axis.name for axis in reversed(_fastest_last(operation)) if axis.size != 1), None)


def _fastest_last(operation: Operation) -> tuple[Axis, ...]:
    """Return the axes of a loop, from its outermost to its innermost."""
    axes = axes_of(operation)
    if isinstance(operation, Pointwise):
        return tuple(axes[dim] for dim in stride_order(operation.results[0].type.layout))
    return axes


def _run(index: tuple[Size, ...], axes: Sequence[Axis]) -> int:
    """Return the number of consecutive points of a loop over ``axes``, the last one the fastest, that have the same
    index."""
    moving = frozenset().union(*map(free_symbols, index))
    run = 1
    for axis in reversed(axes):
        if axis.name in moving or not isinstance(axis.size, int):
            break
        run *= axis.size
    return run


def inner_load_count(operation: Pointwise) -> int:
    """Return the number of distinct elements that the innermost loop loads at one point."""
    fastest = fastest_axis(operation)
    moving = (
        any(fastest in free_symbols(term) for term in each.index) for each in set(loads(*operation.bodies))
    )
    return sum(fastest is None or moves for moves in moving)


def loop_bodies(operation: Operation) -> tuple[Expr, ...]:
    """Return the bodies that are evaluated in a loop."""
    match operation:
        case Pointwise() | Reduction() | Scan():
            return operation.bodies
        case Scatter():
            return (operation.body,)
    return ()


@dataclass(frozen=True, slots=True)
class Deadline:
    """The position at which a buffer that a value depends on is overwritten."""

    position: int
    """The position of the operation that overwrites it."""
    aligned: bool
    """True where the buffer is read at the value's own point only, so that the overwriting loop may still compute the
    value."""

    def sooner(self, other: Deadline | None) -> Deadline:
        """Return the earlier of two deadlines."""
        if other is None or self.position < other.position:
            return self
        if self.position == other.position:
            return Deadline(self.position, self.aligned and other.aligned)
        return other


def deadlines(
    operations: Collection[Operation], versions: VersionDeadlines, materialised: Collection[str]
) -> dict[str, Deadline]:
    """Return the first deadline of every view and pointwise value that has one.

    Values in ``materialised`` have none, since they are computed at their own position.
    """
    found: dict[str, Deadline] = {}
    for operation in operations:
        if not isinstance(operation, View | Pointwise) or operation.name in materialised:
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
