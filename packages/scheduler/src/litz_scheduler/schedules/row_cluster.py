"""Clusters that divide the rows of a kernel that sums rows and columns, so that each row is read once.

Each thread block (CTA) has the same part of all rows of a chunk: its columns' sums stay in its registers, and the CTAs
of a cluster send one another their sums of each row.
"""

from __future__ import annotations

from litz_ir.plan import Accumulate, can_use_cluster
from litz_ir.scalar import loads, nested_reductions
from litz_ir.symbols import free_symbols
from litz_scheduler.analysis.loop_order import LoopNest, bodies_of

_PART_BYTES = 16 << 10
"""Bytes that a CTA loads of a row of each matrix, where more than two CTAs divide it: it has the next row's too."""

_LARGEST_PART = 8192
"""Most elements of a part whose sums of columns stay in registers."""

_NARROW = 2
"""Most bytes of an element of which a CTA holds ``_LARGEST_PART`` and the next row's."""

_ALONE = (12288, 6144)
"""Most wider elements of a row of one CTA, with one sum over columns and with more."""


def row_cluster(length: int, itemsize: int, sums: int, limit: int) -> int:
    """Return the CTAs, at most ``limit``, that divide rows of ``length`` elements of ``itemsize`` bytes, of which there
    are so many ``sums`` over columns; 1 for a row that one CTA holds, or that no cluster does.

    Clusters of two occupy all SMs, larger ones leave some idle.
    """
    alone = _LARGEST_PART if itemsize <= _NARROW else _ALONE[sums > 1]
    if length <= alone or limit < 2:
        return 1
    if length <= 2 * _LARGEST_PART:
        return 2
    found = -(-length // min(_LARGEST_PART, _PART_BYTES // itemsize))
    found = found if found <= limit else -(-length // _LARGEST_PART)
    return found if found <= limit else 1


def chosen_row_cluster(nest: LoopNest, limit: int) -> int:
    """Return the CTAs, at most ``limit``, that divide the rows of a nest whose nested reductions are sums over its last
    outer axis; 1 for other nests."""
    sizes = [axis.size for axis in (*nest.inner, *nest.outer[-1:])]
    static = [size for size in sizes if isinstance(size, int)]
    if not nest.inner or not nest.outer or len(static) < len(sizes) or static[-1] <= min(_ALONE):
        return 1
    row, statements = nest.outer[-1], [each for phase in nest.phases for each in phase.statements]
    bodies = [body for each in statements for body in bodies_of(each)]
    nested = nested_reductions(*bodies)
    if not nested or any([size for _, size in each.axes] != [row.size] for each in nested):
        return 1
    if not can_use_cluster(nest.phases):
        return 1
    along = {axis.name for axis in nest.inner}
    names = ((load, free_symbols(load.index[0])) for load in loads(*bodies))
    widest = max((load.dtype.itemsize for load, own in names if row.name in own and along & own), default=0)
    sums = sum(isinstance(each, Accumulate) for each in statements)
    return row_cluster(static[-1], widest, sums, limit) if widest else 1
