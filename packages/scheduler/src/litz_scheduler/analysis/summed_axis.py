"""Division of a summed axis where indices divide it, as those of integers that hold several elements and of scales for
groups do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from litz_ir.dtypes import b1
from litz_ir.loops import Axis
from litz_ir.scalar import Const, Expr, Masked, Op, build, index, masked, op, substitute_expr, transform, walk
from litz_ir.scalar import Index as IndexValue
from litz_ir.symbols import FloorDiv, Mod, Simplifier, Size, SymbolTable, Term, add, mul, symbol
from litz_scheduler.analysis.graph_facts import axis_ranges

_MAX_UNROLLED = 4
"""The most consecutive elements that are computed at one point, because they lie in one integer in memory."""

_SHORTEST = 16
"""The shortest innermost axis that is worth its loop: the lanes of a vector register."""


def divided_sums(
    values: Sequence[Expr], outer: Sequence[Axis], axis: Axis, symbols: SymbolTable
) -> tuple[tuple[Axis, ...], tuple[Expr, ...]] | None:
    """Return new axes in place of a summed axis, and the values to sum over them; ``None`` where nothing is gained.

    An axis ``r`` that occurs as ``r // 128`` becomes an axis of groups and one within a group. Where ``r // 2`` and
    ``r % 2`` occur, two consecutive elements are computed from one integer, and added at one point.
    """
    if not isinstance(axis.size, int):
        return None
    divisors = _nested_divisors(sorted(set(_divisors(values, axis.name))), axis.size)
    if not divisors:
        return None
    unrolled = max((each for each in divisors if each <= _MAX_UNROLLED), default=1)
    bounds = [unrolled, *(each for each in divisors if each > unrolled), axis.size]
    sizes = [high // low for low, high in pairwise(bounds)]
    if sizes[0] < _SHORTEST:
        return None
    axes = tuple(Axis(f"{axis.name}_{k}", size) for k, size in enumerate(reversed(sizes)))
    start: Size = 0
    for low, each in zip(bounds[:-1], reversed(axes), strict=True):
        start = add(start, mul(symbol(each.name), low))
    simplifier = Simplifier(axis_ranges((*outer, *axes), symbols))

    def element(value: Expr, number: int) -> Expr:
        moved = substitute_expr(value, {axis.name: add(start, number)})
        return transform(moved, _decided, simplifier.simplify)

    sums = []
    for value in values:
        total = element(value, 0)
        for number in range(1, unrolled):
            total = op("add", total, element(value, number))
        sums.append(total)
    return axes, tuple(sums)


def _divisors(values: Sequence[Expr], name: str) -> Iterator[int]:
    """Yield the numbers that index terms with an axis are divided by."""
    stack: list[Term] = [t for node in walk(*values) for t in node.terms if isinstance(t, Term)]
    while stack:
        term = stack.pop()
        if name not in term.free_symbols:
            continue
        if isinstance(term, FloorDiv | Mod) and isinstance(term.divisor, int):
            yield term.divisor
        stack.extend(term.children())


def _nested_divisors(divisors: Sequence[int], size: int) -> tuple[int, ...]:
    """Return the divisors if each divides the next one, and the last one the size; none otherwise."""
    kept = [each for each in divisors if 1 < each < size]
    multiples = zip(kept, [*kept[1:], size])
    return tuple(kept) if all(longer % shorter == 0 for shorter, longer in multiples) else ()


_COMPARED = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def _decided(node: Expr) -> Expr:
    """Return a choice between values by a number as the value that it chooses."""
    match node:
        case IndexValue():
            return index(node.term)
        case Op(name=name, args=(Const() as left, Const() as right)) if name in _COMPARED:
            return build.const(_COMPARED[name](left.value, right.value), b1)
        case Op(name="where", args=(Const() as cond, body, other)):
            return body if cond.value else other
        case Op(name="cast", args=(Const() as value,)):
            return build.cast(value, node.dtype)
        case Masked():
            return masked(node.cond, node.body, node.other)
    return node
