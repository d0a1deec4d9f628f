"""Kernels that scan long rows in chunks, one for each thread block, by a decoupled look-back (Merrill and
Garland, 2016).

A thread block takes the next ticket number, which gives its chunk. It scans its points, publishes their
combination, reads those of the chunks before it, and adds them to its own. Chunks form windows. The combination
of all chunks before a window is one word, written by the last chunk of the window before it; other chunks
publish their own combination alone. So a chunk reads at most one window of words, and combines them in chunk
order: results are the same to the last bit, whatever the order in which thread blocks run.

A word has the 32 bits of a value in its lower half, and above them a bit that says that it has been written; a
64-bit value takes two words. No memory fence is needed between value and flag, but the workspace must be zero
when a launch begins.
"""

from __future__ import annotations

from collections.abc import Sequence

from litz_ir.loops.nodes import SORT, Axis, UserCombiner
from litz_ir.plan.kernel import Kernel, Phase, ScanStore
from litz_ir.plan.schedule import scan_segment
from litz_ir.symbols.polynomials import add, mul, product
from litz_ir.symbols.quotients import cdiv
from litz_ir.symbols.term import Size

LOOKBACK_WINDOW = 256
"""Chunks of a window."""

COUNTER_WORDS = 16
"""Words at the start of the workspace reserved for the ticket counter: 128 bytes, so that it shares no cache line."""

MAX_WORDS_PER_VALUE = 2
"""Most words that one value takes."""

_WIDTHS = (32, 64)


def lookback_scan_of(phases: Sequence[Phase]) -> tuple[Axis, ScanStore] | None:
    """The axis and statement of a kernel that only scans, or ``None``.

    A look-back scan needs one phase over one axis with one scan, other than a sort, whose components have 32 or
    64 bits.
    """
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
    """Number of chunks of a row of a look-back scan."""
    return cdiv(kernel.phases[0].axes[0].size, scan_segment(kernel.schedule))


def lookback_words(kernel: Kernel) -> Size:
    """Elements of a look-back scan's workspace.

    The ticket counter comes first; then, for each half of each component of the combined state, one word for
    each chunk of each row.
    """
    found = lookback_scan_of(kernel.phases)
    assert found is not None, "a kernel with a look-back schedule scans"
    _, statement = found
    count = max(statement.combiner.components, len(statement.values), len(statement.targets))
    rows = product(axis.size for axis in kernel.outer)
    return add(COUNTER_WORDS, mul(mul(count * MAX_WORDS_PER_VALUE, rows), chunk_count(kernel)))
