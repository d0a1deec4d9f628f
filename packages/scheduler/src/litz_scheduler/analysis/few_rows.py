"""Matmuls of few rows with a large matrix on a CPU, which are bound by reading the matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from litz_ir.contraction import axes_by_operand, operands
from litz_ir.loops import Axis, Combiner, NamedCombiner
from litz_ir.scalar import Expr
from litz_ir.symbols import Size

MOST_ROWS = 8
"""The most rows that a register tile holds at once; more are left to libraries."""

_SUM = NamedCombiner("sum")


class FewRows(NamedTuple):
    """The outer axes of a matmul, one of whose operands has few rows."""

    rows: tuple[Axis, ...]
    """Axes that the small operand alone depends on; none for one row."""
    columns: tuple[Axis, ...]
    """Axes that the large operand, the matrix, alone depends on."""
    row_count: int
    """Points of ``rows``."""


def few_rows(combiner: Combiner, values: Sequence[Expr], outer: Sequence[Axis]) -> FewRows | None:
    """Return the axes of a matmul at the points ``outer``; ``None`` where neither operand has few rows, and for other
    reductions."""
    found = operands(values[0]) if combiner == _SUM else None
    if found is None:
        return None
    batch, first, second = axes_by_operand(outer, found[0].free_symbols, found[1].free_symbols)
    if any(axis.size != 1 for axis in batch):
        return None
    for rows, columns in ((first, second), (second, first)):
        count = _static_points(rows)
        if count is not None and count <= MOST_ROWS and _exceeds_rows(columns):
            return FewRows(rows, columns, count)
    return None


def _static_points(axes: Sequence[Axis]) -> int | None:
    count = 1
    for axis in axes:
        if not isinstance(axis.size, int):
            return None
        count *= axis.size
    return count


def _exceeds_rows(axes: Sequence[Axis]) -> bool:
    sizes: list[Size] = [axis.size for axis in axes]
    return any(not isinstance(size, int) or size > MOST_ROWS for size in sizes)
