"""Kernels whose long rows one program after another scans, each a part of a row, and every element is read once.

A program takes a number, the next one, and with it a part. It scans its points, writes down what they come to, looks
back at what the parts before it came to, and goes on from there. Parts come in windows. What everything before a window
comes to is one word, which the last part of the window before it writes; the others write what they alone come to. A
part so reads at most one window of words, from the first on, and combines them in their order: whichever program is
ahead, the same values are combined in the same order, and results are the same to the last bit.

A word has a value's 32 bits and, above them, one that says that it has been written. Values of 64 bits are two words.
So nothing has to be seen before something else, and scratch has to be zero when a launch begins.
"""

from __future__ import annotations

from collections.abc import Sequence

from litz_ir.loops.nodes import SORT, Axis, UserCombiner
from litz_ir.plan.kernel import Kernel, Phase, ScanStore
from litz_ir.plan.schedule import scan_segment
from litz_ir.symbols.term import Size, add, cdiv, mul, product

LOOKBACK_WINDOW = 256
"""The parts of a window."""

COUNTER_WORDS = 16
"""What the counter of programs has to itself of scratch, at its start: a cache line."""

MAX_WORDS_PER_VALUE = 2
"""The words of a value, at the most."""

_WIDTHS = (32, 64)


def lookback_scan_of(phases: Sequence[Phase]) -> tuple[Axis, ScanStore] | None:
    """What a kernel scans if it does that alone, in one phase over one axis, and what is combined fits words: the axis
    and the statement."""
    if len(phases) != 1 or len(phases[0].axes) != 1 or len(phases[0].statements) != 1:
        return None
    (statement,) = phases[0].statements
    if not isinstance(statement, ScanStore):
        return None
    combiner = statement.combiner
    if combiner == SORT:
        return None
    if isinstance(combiner, UserCombiner) and any(
        expr.dtype.bits not in _WIDTHS for expr in combiner.identity
    ):
        return None
    return phases[0].axes[0], statement


def chunk_count(kernel: Kernel) -> Size:
    """How many parts a row of a relayed kernel has."""
    return cdiv(kernel.phases[0].axes[0].size, scan_segment(kernel.schedule))


def lookback_words(kernel: Kernel) -> Size:
    """The elements that a relayed kernel's scratch has: the counter, and for each half of each component of what is
    combined a word for each part of each row."""
    found = lookback_scan_of(kernel.phases)
    assert found is not None, "a relayed kernel scans"
    _, statement = found
    own = len(statement.combiner.identity) if isinstance(statement.combiner, UserCombiner) else 0
    count = max(own, len(statement.values), len(statement.targets))
    rows = product(axis.size for axis in kernel.outer)
    return add(COUNTER_WORDS, mul(mul(count * MAX_WORDS_PER_VALUE, rows), chunk_count(kernel)))
