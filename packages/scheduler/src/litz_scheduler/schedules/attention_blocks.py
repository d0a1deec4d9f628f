"""Schedules of attention on a CPU: the axes of the rows and columns, and the rows of a block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from litz_ir.loops import Axis
from litz_ir.plan import Accumulate, CpuAttention, Kernel, attention_of
from litz_ir.scalar import nested_reductions
from litz_scheduler.schedules.attention_rows import with_shared_rows

_ROWS, _LEAST_ROWS = 64, 16
"""Rows of a block, a multiple of the lanes of all vectors (their scores with 64 keys fill 16 KB), and the fewest: those
of the widest vector."""

_FEW = 32
"""The most rows of a softmax whose lanes are the elements of a head. That takes 2.5 ns for a row and a key of 128
elements from 8 rows on (Zen 5), blocks of 64 rows 2.6, and of 32 rows 4.6: these copy keys and values."""


def attention_in_blocks(kernel: Kernel) -> Kernel | None:
    """Return a kernel of attention with the schedule of its blocks; ``None`` for other kernels.

    Rows that share keys are one axis where they are few.
    """
    sums = [each for phase in kernel.phases[:1] for each in phase.statements if isinstance(each, Accumulate)]
    if not nested_reductions(*(value for each in sums for value in each.values)):
        return None
    for each in (with_shared_rows(kernel), kernel):
        schedule = None if each is None else _chosen(each)
        if each is not None and schedule is not None:
            return replace(each, schedule=schedule)
    return None


def _chosen(kernel: Kernel) -> CpuAttention | None:
    """Return the schedule over the last axis that may have the rows, with the largest blocks that skip as many hidden
    keys as the smallest ones do."""
    for rows in (*reversed(kernel.outer), None):
        for columns in kernel.outer:
            forms = {each: attention_of(kernel, each) for each in _candidates(rows, columns.name)}
            found = {each: (form.seen, form.count) for each, form in forms.items() if form is not None}
            if found:
                *_, smallest = found.values()
                return next(each for each, skipped in found.items() if skipped == smallest)
    return None


def _candidates(rows: Axis | None, columns: str) -> Iterator[CpuAttention]:
    """Yield schedules over axes, those of large blocks first."""
    if rows is None:
        yield CpuAttention(columns, 1, lanes="columns")
        return
    size = rows.size
    if isinstance(size, int) and 1 <= size <= _FEW:
        yield CpuAttention(columns, size, rows.name, "columns")
    block = _ROWS
    while block >= _LEAST_ROWS:
        if not isinstance(size, int) or block < 2 * size or block == _LEAST_ROWS:
            yield CpuAttention(columns, block, rows.name)
        block //= 2
