"""Borders of a vector loop: points at which a condition or an index along it changes form, and the segments between.

Padding, concatenation and rotation read another element beyond a point of a row. A loop divided there decides at each
segment, once, what it would otherwise decide for each lane.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from litz_codegen_cpp.emit.bodies.index import index_of
from litz_ir.dtypes import b1
from litz_ir.loops import Axis
from litz_ir.plan import Phase, ScanStore, Statement, Store
from litz_ir.scalar import Checked, Const, Expr, Load, Masked, Op, build, transform, walk
from litz_ir.symbols import (
    FloorDiv,
    Max,
    Min,
    Mod,
    Range,
    Simplifier,
    Size,
    Term,
    add,
    bounds,
    coefficient,
    free_symbols,
    mul,
    symbol,
)

_MOST = 8
"""The most segments of a loop."""

_LARGEST = 512
"""The most nodes of the bodies of all segments, which the compiler compiles each."""

_STEP = 3
"""The cost of a register's step and of starting a segment, in operations."""

_IRREGULAR = 6
"""The cost of a load whose lanes are not known to be contiguous, and of an extremum or quotient, in operations."""

_MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_COMPARISONS = frozenset(_MIRRORED)


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive points of an axis, and the phases that compute them."""

    low: int
    """The first point."""
    high: int
    """The point after the last one."""
    phases: tuple[Phase, ...]
    """The phases, without conditions that hold at every point of the segment."""


def segments(
    phases: Sequence[Phase], axis: Axis, ranges: Mapping[str, Range], lanes: int
) -> tuple[Segment, ...]:
    """Divide a vector axis where that takes fewer operations; empty where it does not."""
    if not isinstance(axis.size, int) or axis.size < 2 or not all(map(_is_divisible, phases)):
        return ()
    found = _divided(Segment(0, axis.size, tuple(phases)), axis.name, ranges)
    if not 1 < len(found) <= _MOST or axis.size < len(found) * lanes:
        return ()
    if any(each.low and _has_quotients(each.phases, axis.name) for each in found):
        return ()  # lanes of a register would not be those of one quotient
    if sum(_nodes(each.phases) for each in found) > _LARGEST:
        return ()
    whole = _cost(Segment(0, axis.size, tuple(phases)), axis.name, lanes)
    divided = sum(_cost(each, axis.name, lanes) for each in found)
    return found if divided < whole else ()


def _is_divisible(phase: Phase) -> bool:
    """Return True for a phase whose points may run segment by segment."""
    return not any(
        isinstance(each, ScanStore) or (isinstance(each, Store) and each.mode != "set")
        for each in phase.statements
    )


def _divided(whole: Segment, axis: str, ranges: Mapping[str, Range]) -> tuple[Segment, ...]:
    """Return the segments between all borders, or more than the most of them."""
    pending: list[Segment] = [whole]
    done: list[Segment] = []
    while pending and len(done) + len(pending) <= _MOST:
        segment = pending.pop()
        border = next(_borders(segment, axis), None)
        if border is None:
            done.append(segment)
            continue
        pending.append(_narrowed(segment, border, segment.high, axis, ranges))
        pending.append(_narrowed(segment, segment.low, border, axis, ranges))
    return (*done, *pending)


# --- borders ------------------------------------------------------------------------------------------------


def _borders(segment: Segment, axis: str) -> Iterator[int]:
    """Yield points inside a segment, from each of which on some condition or index has another form."""
    low, high = segment.low, segment.high
    terms: set[Term] = set()
    for node in walk(*_values(segment.phases)):
        if isinstance(node, Op) and node.name in _COMPARISONS:
            distance = _distance(node)
            if distance is not None:
                yield from _inside(_crossings(distance, axis, node.name), low, high)
        terms.update(part for term in node.terms for part in _subterms(term))
    for phase in segment.phases:
        terms.update(
            part for each in phase.statements if isinstance(each, Store) for part in _subterms(each.offset)
        )
    for term in terms:
        if axis not in term.free_symbols:
            continue
        if isinstance(term, Min | Max):
            for left, right in pairwise(term.args):
                yield from _inside(_crossings(add(left, mul(right, -1)), axis, "ge"), low, high)
        elif isinstance(term, FloorDiv | Mod):
            yield from _inside(_jumps(term, axis, low), low, high)


def _inside(points: Sequence[int], low: int, high: int) -> Iterator[int]:
    return (point for point in points if low < point < high)


def _subterms(term: Size) -> Iterator[Term]:
    """Yield a term and all terms below it."""
    if isinstance(term, Term):
        yield term
        for child in term.children():
            yield from _subterms(child)


def _distance(node: Op) -> Size | None:
    """Return the difference of two compared indices; None for other values."""
    left, right = map(index_of, node.args)
    return None if left is None or right is None else add(left, mul(right, -1))


def _line(term: Size, axis: str) -> tuple[int, int] | None:
    """Return slope and intercept of a linear function of the axis alone."""
    slope = coefficient(term, axis)
    if not isinstance(slope, int) or slope == 0:
        return None
    rest = add(term, mul(symbol(axis), -slope))
    return (slope, rest) if isinstance(rest, int) else None


def _crossings(distance: Size, axis: str, name: str) -> tuple[int, ...]:
    """Return the points from which on a comparison of a distance with 0 may have another value."""
    line = _line(distance, axis)
    if line is None:
        return ()
    slope, rest = line
    if slope < 0:
        slope, rest, name = -slope, -rest, _MIRRORED[name]
    not_negative, positive = -(rest // slope), -rest // slope + 1
    if name in ("lt", "ge"):
        return (not_negative,)
    return (positive,) if name in ("le", "gt") else (not_negative, positive)


def _jumps(term: FloorDiv | Mod, axis: str, low: int) -> tuple[int, ...]:
    """Return the first point after ``low`` at which a quotient by a number has another value."""
    line = _line(term.dividend, axis)
    divisor = term.divisor
    if line is None or not isinstance(divisor, int) or divisor <= 1 or abs(line[0]) != 1:
        return ()
    slope, rest = line
    multiple = (slope * low + rest) // divisor * divisor
    return (multiple + divisor - rest,) if slope == 1 else (rest - multiple + 1,)


# --- the bodies of a segment --------------------------------------------------------------------------------


def _narrowed(segment: Segment, low: int, high: int, axis: str, ranges: Mapping[str, Range]) -> Segment:
    """Return a part of a segment, with what its range decides."""
    known = {**ranges, axis: Range(low, high - 1)}
    simplifier = Simplifier(known)
    memo: dict[object, object] = {}

    def visit(node: Expr) -> Expr:
        return _decided(node, known)

    def value(body: Expr) -> Expr:
        return transform(body, visit, simplifier.simplify, memo=memo)

    def changed(statement: Statement) -> Statement:
        if isinstance(statement, Store):
            offset = simplifier.simplify(statement.offset)
            return replace(statement, offset=offset, value=value(statement.value))
        return replace(statement, values=tuple(map(value, statement.values)))

    phases = tuple(Phase(each.axes, tuple(map(changed, each.statements))) for each in segment.phases)
    return Segment(low, high, phases)


def _decided(node: Expr, ranges: Mapping[str, Range]) -> Expr:
    """Return a comparison of indices that has one value in their ranges as that value, and choices by it decided."""
    match node:
        case Op(name=name) if name in _COMPARISONS:
            truth = _truth(node, ranges)
            return node if truth is None else Const(truth, b1)
        case Op(name="where"):
            return build.where(*node.args)
        case Masked():
            return build.masked(node.cond, node.body, node.other)
        case Checked():
            return build.checked(node.cond, node.body, node.fault)
        case Op(name="cast", args=(Const() as value,)):
            return build.cast(value, node.dtype)
        case Op(name="bit_not", args=(Const() as value,)) if node.dtype == b1:
            return Const(not value.value, b1)
        case Op(name="bit_and" | "bit_or", args=(left, right)) if node.dtype == b1:
            for one, other in ((left, right), (right, left)):
                if isinstance(one, Const):
                    return other if bool(one.value) == (node.name == "bit_and") else one
    return node


def _truth(node: Op, ranges: Mapping[str, Range]) -> bool | None:
    """Return the value of a comparison of indices, or None."""
    distance = _distance(node)
    if distance is None:
        return None
    known = bounds(distance, ranges)
    low, high = known.low, known.high
    negative, positive = high is not None and high < 0, low is not None and low > 0
    at_most, at_least = high is not None and high <= 0, low is not None and low >= 0
    holds, fails = {
        "lt": (negative, at_least),
        "le": (at_most, positive),
        "gt": (positive, at_most),
        "ge": (at_least, negative),
        "eq": (at_most and at_least, negative or positive),
        "ne": (negative or positive, at_most and at_least),
    }[node.name]
    return True if holds else False if fails else None


# --- costs --------------------------------------------------------------------------------------------------


def _values(phases: Sequence[Phase]) -> list[Expr]:
    """Return the values of all statements."""
    found: list[Expr] = []
    for phase in phases:
        for statement in phase.statements:
            found.extend((statement.value,) if isinstance(statement, Store) else statement.values)
    return found


def _nodes(phases: Sequence[Phase]) -> int:
    return sum(1 for _ in walk(*_values(phases)))


def _has_quotients(phases: Sequence[Phase], axis: str) -> bool:
    """Return True when a quotient or remainder varies along the axis."""
    terms = [term for node in walk(*_values(phases)) for term in node.terms]
    terms += [each.offset for phase in phases for each in phase.statements if isinstance(each, Store)]
    return any(
        isinstance(part, FloorDiv | Mod) and axis in part.free_symbols
        for term in terms
        for part in _subterms(term)
    )


def _cost(segment: Segment, axis: str, lanes: int) -> int:
    """Return the operations of a segment's steps along the axis, each of one register."""
    total = _STEP
    for node in walk(*_values(segment.phases)):
        moving = [part for term in node.terms for part in _subterms(term) if axis in free_symbols(part)]
        irregular = sum(isinstance(part, Min | Max | FloorDiv | Mod) for part in moving)
        total += 1 + _IRREGULAR * irregular
        if isinstance(node, Load) and any(coefficient(term, axis) is None for term in node.index):
            total += _IRREGULAR
        if isinstance(node, Masked) and axis in node.cond.free_symbols:
            total += 1
    return _STEP + total * -(-(segment.high - segment.low) // lanes)
