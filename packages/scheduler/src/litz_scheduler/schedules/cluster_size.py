"""Cluster size of GPU reductions: the thread blocks (CTAs) that reduce one outer point with a cross-CTA reduction.

Clusters have two uses. A row that fits in the registers of several CTAs but not of one is read once instead of twice.
And where there are fewer outer points than CTAs that fill the SMs, a cluster needs one
kernel instead of the two of a split reduction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from litz_ir.contraction import matmul_nest
from litz_ir.loops import Axis, NamedCombiner
from litz_ir.plan import Accumulate, can_use_cluster
from litz_ir.scalar import Load
from litz_ir.symbols import Size, SymbolTable, coefficient, free_symbols
from litz_ir.target import Capabilities, DeviceModel
from litz_scheduler.analysis.cost import estimate, next_power_of_two, points
from litz_scheduler.analysis.cost_model import (
    CTAS_PER_SM,
    MAX_SPLIT_CLUSTER,
    MIN_COLUMN_TILE,
    max_cluster_size,
)
from litz_scheduler.analysis.graph_facts import has_unaligned_rows
from litz_scheduler.analysis.loop_order import LoopNest, nodes_of, stores_of
from litz_scheduler.options import SchedulerOptions

_REGISTER_MARGIN = 2
"""The register capacity of a CTA over the elements of a row that each CTA of a cluster holds.

At two, several CTAs fit on an SM, and some load while others wait for states.
"""

_WEIGHTED_CLUSTER = 8
"""Most CTAs of a cluster whose rows share values, such as weights, if they hold a row: all CTAs of a larger one wait
for the values longer than they gain by holding fewer elements. On an H200 the gradient of an RMS norm of 262,144
elements in f32 takes 464 us where rows are read twice and 395 with 16 CTAs."""

_MIN_ELEMENTS_PER_CTA = 16
"""The fewest elements for each CTA of a cluster, per CTA of the cluster: none is empty even though chunks start at
multiples of 16 bytes."""


def chosen_cluster_size(
    nest: LoopNest, capabilities: Capabilities, symbols: SymbolTable, options: SchedulerOptions
) -> int:
    """Return the cluster size of a nest; 1 where one CTA reduces each outer point."""
    limit, inner = max_cluster_size(capabilities, options), points(nest.inner)
    if limit < 2 or not isinstance(inner, int) or not can_use_cluster(nest.phases):
        return 1
    statements = [each for phase in nest.phases for each in phase.statements]
    if any(
        isinstance(each, Accumulate) and not isinstance(each.combiner, NamedCombiner) for each in statements
    ):
        return 1  # a user-given combiner need not accept its identity as either argument
    if any(isinstance(each, Accumulate) and _is_matmul(each, nest) for each in statements):
        return 1
    while limit > 1 and inner < _MIN_ELEMENTS_PER_CTA * limit * limit:
        limit //= 2
    along_outer = _is_contiguous_outside(nest, symbols)
    if along_outer and _has_unaligned_columns(nest):
        return 1
    model = capabilities.model
    outer = estimate(points(nest.outer), symbols)
    if not along_outer and inner > options.long_row and _rereads(nest):
        wanted = next_power_of_two(-(-inner * _REGISTER_MARGIN // options.long_row))
        for largest in (_WEIGHTED_CLUSTER, limit) if _shares_rows(nest) else (limit,):
            cluster = min(wanted, limit, largest)
            if -(-inner // cluster) * _loaded_rows(nest) <= _REGISTER_MARGIN * options.long_row:
                return cluster
    limit = min(limit, MAX_SPLIT_CLUSTER)
    tile = _column_tile(nest, model) if along_outer else 1
    ctas = -(-outer // tile)
    if ctas >= 2 * model.sm_count:
        return 1
    nbytes = inner * tile * sum(node.dtype.itemsize for node in _loads(nest))
    cluster = min(CTAS_PER_SM * model.sm_count // max(ctas, 1), nbytes // options.gpu_split_bytes)
    return next_power_of_two(min(cluster, limit) + 1) // 2 if cluster > 1 else 1


def _column_tile(nest: LoopNest, model: DeviceModel) -> int:
    """Return the results of a tile of columns: those of a whole line of memory, so that narrow elements too have enough
    bytes in flight. On an H200 sums over 12,608 x 3,072 in bf16 take 37.0 us in tiles of 32 columns, 22.6 in 64."""
    widest = max((node.dtype.itemsize for node in _loads(nest)), default=1)
    return max(MIN_COLUMN_TILE, model.line_bytes // widest)


def _is_matmul(statement: Accumulate, nest: LoopNest) -> bool:
    """Return whether a statement is a matmul, which is tiled by other rules."""
    return matmul_nest(statement.combiner, statement.values, nest.outer, nest.inner) is not None


def _loads(nest: LoopNest) -> tuple[Load, ...]:
    """Return the distinct loads of the phases with inner axes."""
    found = {
        (node.buffer, node.index): node
        for phase in nest.phases
        if phase.axes
        for node in nodes_of(phase.statements)
        if isinstance(node, Load)
    }
    return tuple(found.values())


def _rereads(nest: LoopNest) -> bool:
    """Return whether phases read points of a row again that earlier phases read or wrote.

    Loads that do not depend on the row are left out: they stay in caches.
    """
    outer = {axis.name for axis in nest.outer}
    touched: set[tuple[str, Size]] = set()
    for phase in nest.phases:
        if phase.axes:
            loads = [node for node in nodes_of(phase.statements) if isinstance(node, Load)]
            read = {(node.buffer, node.index[0]) for node in loads}
            if any(free_symbols(offset) & outer for _, offset in touched & read):
                return True
            touched |= {*read, *(target for each in phase.statements for target in stores_of(each))}
    return False


def _varying(nest: LoopNest) -> Counter[bool]:
    """Count the loads that vary along a row, by whether they also vary with the row."""
    inner, outer = ({axis.name for axis in axes} for axes in (nest.inner, nest.outer))
    names = (free_symbols(node.index[0]) for node in _loads(nest))
    return Counter(bool(each & outer) for each in names if each & inner)


def _shares_rows(nest: LoopNest) -> bool:
    """Return whether points of all rows are computed from the same values, such as weights."""
    return _varying(nest)[False] > 0


def _loaded_rows(nest: LoopNest) -> int:
    """Return the number of rows that a CTA loads and keeps in registers, at least 1."""
    return max(1, _varying(nest)[True])


def _offsets(nest: LoopNest) -> tuple[Size, ...]:
    """Return the distinct offsets that the phases with inner axes load and store."""
    stored = (
        term
        for phase in nest.phases
        if phase.axes
        for each in phase.statements
        for _, term in stores_of(each)
    )
    return tuple(dict.fromkeys([*(node.index[0] for node in _loads(nest)), *stored]))


def _is_contiguous_outside(nest: LoopNest, symbols: SymbolTable) -> bool:
    """Return whether more accesses are contiguous along an outer axis than along an inner one, weighted by elements."""
    balance = 0
    for offset in _offsets(nest):
        names = free_symbols(offset)
        touched = estimate(points(axis for axis in nest.outer + nest.inner if axis.name in names), symbols)
        balance += touched * (_unit(nest.outer, offset) - _unit(nest.inner, offset))
    return balance > 0


def _has_unaligned_columns(nest: LoopNest) -> bool:
    """Return whether rows of columns start at addresses of which copies to shared memory take single elements.

    Loops of a cluster prefetch by such copies. On an H100 sums of 4,096 x 7,203 take 859 us with them and 101 in plain
    loops; rows of a multiple of 16 bytes are quicker in clusters.
    """
    return any(has_unaligned_rows(load.index[0], nest.outer, nest.inner, load.dtype) for load in _loads(nest))


def _unit(axes: Sequence[Axis], offset: Size) -> bool:
    return any(coefficient(offset, axis.name) == 1 for axis in axes)
