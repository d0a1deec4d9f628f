"""Rows of attention that read the same keys, as one axis: heads of a group, and the queries of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from litz_ir.loops import Axis, NamedCombiner
from litz_ir.plan import Accumulate, Kernel, Phase, Statement, Store, terms_not_divided
from litz_ir.scalar import Expr, nested_reductions, substitute_expr, transform
from litz_ir.symbols import (
    FloorDiv,
    Simplifier,
    Size,
    Symbol,
    add,
    extent,
    floordiv,
    mod,
    mul,
    product,
    substitute,
    symbol,
)  # fmt: skip

SHARED_ROWS = "attention.rows"
"""The axis of rows of several axes."""

_MOST_ROWS = 32
"""The most rows of such an axis: with more, time goes into dots, and keys are read seldom."""


def with_shared_rows(kernel: Kernel) -> Kernel | None:
    """Return a kernel of softmax-weighted sums with the rows that share keys on one axis; ``None`` for others.

    A head whose keys are those of its group is divided into the group and a row.
    """
    statements = [each for phase in kernel.phases for each in phase.statements]
    sums = [each for each in statements if isinstance(each, Accumulate)]
    if len(sums) != 1 or sums[0].combiner != NamedCombiner("softmax_sum"):
        return None
    if not all(isinstance(each, Accumulate | Store) for each in statements):
        return None
    keys = frozenset(axis.name for axis in kernel.phases[0].axes)
    common = _common(sums[0], keys)
    if not common:
        return None
    groups = _groups(kernel, common)
    if groups:
        mapping: dict[str, Size] = {
            name: add(mul(symbol(f"{name}.group"), size), symbol(f"{name}.row"))
            for name, size in groups.items()
        }
        kernel = _substituted(kernel, mapping, _divided(kernel.outer, groups))
        sums = [each for each in kernel.phases[0].statements if isinstance(each, Accumulate)]
        common = _common(sums[0], keys)
    fixed = frozenset[str]().union(*(each.free_symbols for each in common))
    alone = sums[0].values[0].free_symbols - fixed
    rows = [axis for axis in kernel.outer if axis.name in alone and axis.size != 1]
    count = product(axis.size for axis in rows)
    if not rows or not isinstance(count, int) or count > _MOST_ROWS or (len(rows) == 1 and not groups):
        return None
    return kernel if len(rows) == 1 else _merged(kernel, rows, count)


def _common(weighted: Accumulate, keys: frozenset[str]) -> list[Expr]:
    """Return what is read for a key: operands of dots that vary with the keys, and the value; empty without dots."""
    score, value = weighted.values
    dots = nested_reductions(score)
    operands = [each for dot in dots for each in dot.body.children if each.free_symbols & keys]
    return [*operands, value] if dots else []


def _merged(kernel: Kernel, rows: Sequence[Axis], count: int) -> Kernel:
    """Return a kernel with several axes as one, the last of them innermost."""
    mapping: dict[str, Size] = {}
    rest: Size = symbol(SHARED_ROWS)
    for axis in reversed(rows):
        mapping[axis.name] = rest if axis is rows[0] else mod(rest, axis.size)
        rest = floordiv(rest, axis.size)
    outer = [axis for axis in kernel.outer if axis not in rows]
    outer.insert(kernel.outer.index(rows[-1]) - len(rows) + 1, Axis(SHARED_ROWS, count))
    return _substituted(kernel, mapping, outer)


def _groups(kernel: Kernel, common: Sequence[Expr]) -> dict[str, int]:
    """Return the axes that keys and values only depend on by a quotient, with the divisor."""
    found: dict[str, int] = {}
    terms = list(terms_not_divided(common))
    for axis in kernel.outer:
        quotients = {
            each for each in terms if isinstance(each, FloorDiv) and each.dividend == symbol(axis.name)
        }
        if len(quotients) != 1 or any(isinstance(each, Symbol) and each.name == axis.name for each in terms):
            continue
        divisor = next(iter(quotients)).divisor
        if isinstance(divisor, int) and isinstance(axis.size, int) and axis.size % divisor == 0:
            found[axis.name] = divisor
    return found


def _divided(outer: Sequence[Axis], groups: Mapping[str, int]) -> list[Axis]:
    """Return axes with those of groups as two, of the groups and the rows of each."""
    found: list[Axis] = []
    for axis in outer:
        size = groups.get(axis.name)
        if size is None:
            found.append(axis)
        else:
            found += [Axis(f"{axis.name}.group", floordiv(axis.size, size)), Axis(f"{axis.name}.row", size)]
    return found


def _substituted(kernel: Kernel, mapping: Mapping[str, Size], outer: Sequence[Axis]) -> Kernel:
    """Return a kernel over other outer axes."""
    axes = (*outer, *(axis for phase in kernel.phases for axis in phase.axes))
    ranges = {info.name: info.range for info in kernel.symbols if info.kind != "float"}
    simplify = Simplifier(ranges | {axis.name: extent(axis.size) for axis in axes}).simplify

    def expression(root: Expr) -> Expr:
        return transform(substitute_expr(root, mapping), lambda node: node, simplify)

    def statement(each: Statement) -> Statement:
        if isinstance(each, Store):
            return replace(
                each, offset=simplify(substitute(each.offset, mapping)), value=expression(each.value)
            )
        assert isinstance(each, Accumulate), "attention has no others"
        return replace(each, values=tuple(map(expression, each.values)))

    phases = tuple(Phase(phase.axes, tuple(map(statement, phase.statements))) for phase in kernel.phases)
    return replace(kernel, outer=tuple(outer), phases=phases)
