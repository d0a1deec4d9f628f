"""Sizes of clusters that divide the rows of a kernel that sums rows and columns, so that each row is read once.

A thread block (CTA) of a cluster has the same columns of every row of a chunk. The sums of these columns stay in its
registers, and the CTAs send one another their sums of each row.
"""

from __future__ import annotations

from litz_ir.plan import Accumulate, can_use_cluster
from litz_ir.scalar import loads, nested_reductions
from litz_ir.symbols import free_symbols
from litz_scheduler.analysis.loop_order import LoopNest, bodies_of

_PART_BYTES = 16 << 10
"""Bytes of a row of each matrix that a CTA has where more than two divide it: the next row's are in registers too."""

_LARGEST_PART = 8192
"""Most elements of a row that a CTA has, whose sums of columns stay in registers."""

_NARROW_BYTES = 2
"""Most bytes of an element of which one CTA has rows of ``_LARGEST_PART``, and the next row's elements in registers."""

_ALONE = (12288, 6144)
"""Most elements, of more bytes, of a row that one CTA has: with one sum over columns, and with more."""


def row_cluster(length: int, itemsize: int, sums: int, limit: int) -> int:
    """Return the number of CTAs that divide a row; 1 where one CTA holds it, or where no cluster does.

    A row has ``length`` elements, of which the widest has ``itemsize`` bytes; ``sums`` is the number of sums over
    columns, and ``limit`` the largest cluster. Two CTAs have larger parts than those of more, since clusters of two
    occupy all SMs and larger ones leave some idle.
    """
    alone = _LARGEST_PART if itemsize <= _NARROW_BYTES else _ALONE[sums > 1]
    if length <= alone or limit < 2:
        return 1
    if length <= 2 * _LARGEST_PART:
        return 2
    found = -(-length // min(_LARGEST_PART, _PART_BYTES // itemsize))
    found = found if found <= limit else -(-length // _LARGEST_PART)
    return found if found <= limit else 1


def chosen_row_cluster(nest: LoopNest, limit: int) -> int:
    """Return the number of CTAs, at most ``limit``, that divide the rows of a nest; 1 for no cluster.

    The nested reductions of such a nest are over as many points as its last outer axis has: sums over its rows.
    """
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
