"""Schedules of kernels: parallel and vector axes on a CPU; cluster size and look-back scan on a GPU."""

from __future__ import annotations

from litz_ir.loops import Axis, UserCombiner
from litz_ir.plan import (
    Accumulate,
    CpuLoops,
    CpuTiledSum,
    ScanStore,
    Schedule,
    Statement,
    Store,
    TileRequest,
    tiled_sum_of,
)
from litz_ir.scalar import HEAVY, OPS, Op, indirects_in, walk
from litz_ir.symbols import Size, SymbolTable, coefficient, free_symbols
from litz_ir.target import Capabilities
from litz_scheduler.analysis.cost import estimate, points
from litz_scheduler.analysis.cost_model import max_cluster_size
from litz_scheduler.analysis.loop_order import LoopNest, loads_of, stores_of, transposed_axis
from litz_scheduler.options import Lanes, SchedulerOptions
from litz_scheduler.schedules.cluster_size import chosen_cluster_size
from litz_scheduler.schedules.lookback_scan import lookback_of
from litz_scheduler.schedules.row_cluster import chosen_row_cluster

_LANE_BYTES = 4
"""Bytes of a vector lane: those of f32, the most common compute dtype."""


def schedule_nest(
    nest: LoopNest,
    traffic: int,
    work: int,
    capabilities: Capabilities,
    symbols: SymbolTable,
    options: SchedulerOptions,
    has_scratch: bool = False,
) -> Schedule:
    """Return the schedule of a loop nest.

    On a CPU it has the parallel axes, the vector axis and the grain. On a device with thread blocks it is a request of
    a cluster size and the segment of a look-back scan; the device's target decides the rest. ``traffic`` is in bytes,
    ``work`` in adds. ``has_scratch``: the nest has scratch arrays for each outer point, so that outer points cannot be
    vectorised.
    """
    if capabilities.max_tile_elements:
        divided = chosen_row_cluster(nest, max_cluster_size(capabilities, options))
        if divided > 1:
            return TileRequest(row_cluster=divided)
        cluster = chosen_cluster_size(nest, capabilities, symbols, options)
        return TileRequest(cluster, lookback_of(nest, capabilities, symbols, options))
    columns = 0 if has_scratch else capabilities.panel_columns
    if columns and tiled_sum_of(nest.outer, nest.phases, columns) is not None:
        names = tuple(axis.name for axis in nest.outer)
        return CpuTiledSum(columns, _grain(nest, names, traffic, work, symbols, options))
    lanes, unroll = options.lanes, options.unroll
    invariant = options.batch_invariant and _sums(nest)
    if invariant:
        lanes, unroll = _invariant_lanes(nest), _INVARIANT_UNROLL
    elif nest.along_sum and lanes == "best":
        lanes = "inner"
    vector = _vector_axis(nest, capabilities, symbols, options, lanes, has_scratch, invariant)
    parallel = _parallel_axes(nest, capabilities, symbols)
    grain = _grain(nest, parallel, traffic, work, symbols, options)
    return CpuLoops(parallel=parallel, vector=vector, unroll=unroll, grain=grain)


_INVARIANT_UNROLL = 4
"""Vector registers of sums whose order may not depend on the rest of their kernel: as many as hide an add's latency."""


def _sums(nest: LoopNest) -> bool:
    return any(isinstance(each, Accumulate) for phase in nest.phases for each in phase.statements)


def _invariant_lanes(nest: LoopNest) -> Lanes:
    """Return the lanes of a nest of sums, by strides along what is summed alone.

    Lanes along the summed axis have partial sums of their own; lanes along results, or none, add in the order of the
    loop. Which of the last two it is changes no result, so only that choice may depend on the number of results.
    """
    inner = nest.inner[-1] if nest.inner else None
    if inner is None:
        return "outer"
    slopes = {
        coefficient(term, inner.name)
        for phase in nest.phases
        for term in loads_of(phase.statements)
        if inner.name in free_symbols(term)
    }
    return "inner" if slopes <= {1} else "outer"


def _vector_axis(
    nest: LoopNest,
    capabilities: Capabilities,
    symbols: SymbolTable,
    options: SchedulerOptions,
    wanted: Lanes,
    has_scratch: bool,
    strictly: bool,
) -> str | None:
    """Return the axis of the lanes, if any; with ``strictly`` none rather than another than is ``wanted``."""
    if not capabilities.model.vector_bytes or wanted == "none":
        return None
    lanes = capabilities.model.vector_bytes // _LANE_BYTES
    candidates = [axes[-1] for axes in (nest.inner, nest.outer) if axes]
    if has_scratch:
        candidates = [a for a in candidates if a in nest.inner]
    statements = [statement for phase in nest.phases for statement in phase.statements]
    candidates = [a for a in candidates if not any(_combines_one_by_one(s, a.name) for s in statements)]
    summed = _summed_axes(nest)
    candidates = [a for a in candidates if a.name not in summed]
    scans = [s for s in statements if isinstance(s, ScanStore)]
    if not all(_scans_lanes(scan, options) for scan in scans):
        candidates = [a for a in candidates if a not in nest.inner]
    if wanted != "best":
        chosen = [a for a in candidates if (a in nest.inner) == (wanted == "inner")]
        candidates = chosen or ([] if strictly else candidates)
    scores = {axis.name: _efficiency(nest, axis, lanes, symbols) for axis in candidates}
    best = max(scores, key=lambda name: scores[name], default=None)
    return best if best is not None and scores[best] >= _MIN_EFFICIENCY else None


def _combines_one_by_one(statement: Statement, axis: str) -> bool:
    """Return True for a store that adds to elements which memory decides along an axis, or which are not adjacent.

    Two lanes may have one element, or each has a cache line of its own.
    """
    if (
        not isinstance(statement, Store)
        or statement.mode == "set"
        or axis not in free_symbols(statement.offset)
    ):
        return False
    if any(axis in free_symbols(atom) for atom in indirects_in(statement.offset)):
        return True
    return coefficient(statement.offset, axis) != 1


def _summed_axes(nest: LoopNest) -> frozenset[str]:
    """Return the outer axes along which points combine into one element, so that they run one after another."""
    stores = [s for p in nest.phases for s in p.statements if isinstance(s, Store) and s.mode != "set"]
    return frozenset(
        axis.name for axis in nest.outer if any(axis.name not in free_symbols(s.offset) for s in stores)
    )


_ANY_ORDER = frozenset(("min", "max", "any", "all", "xor"))
"""Combiners whose results do not depend on the order of combination; the others are such for integers alone."""


def _scans_lanes(scan: ScanStore, options: SchedulerOptions) -> bool:
    """Return True where lanes may be points of the scan, which combines them in another order than one by one.

    An expensive combiner is cheaper once for each point than once for each step of a vector's lanes.
    """
    ordered = options.exact or options.batch_invariant
    if isinstance(scan.combiner, UserCombiner):
        return not ordered and not any(
            isinstance(e, Op) and OPS[e.name].cost > HEAVY for e in walk(*scan.combiner.body)
        )
    if not scan.combiner.kind.merges_states or scan.combiner.results != 1:
        return False
    return not ordered or scan.combiner.name in _ANY_ORDER or not scan.values[0].dtype.is_float


STRIDED, SCATTERED = 0.15, 0.08
"""The throughput of strided loads and of gathers, as a fraction of that of contiguous vector loads."""

_MAX_UNROLLED = 2
"""The longest axis that the compiler unrolls, such as real and imaginary values; it is not vectorised."""

_MIN_EFFICIENCY = 0.02
"""The fraction of contiguous vector throughput below which vector code is no faster than scalar code."""


def _efficiency(nest: LoopNest, axis: Axis, lanes: int, symbols: SymbolTable) -> float:
    """Return the fraction of contiguous vector throughput that accesses reach when ``axis`` is vectorised.

    Accesses count by how often each happens. Lanes of the last register that an axis does not fill are lost.
    """
    total = reached = 0.0
    for phase in nest.phases:
        weight = float(max(estimate(points(phase.axes), symbols), 1)) if phase.axes else 1.0
        stored = [term for statement in phase.statements for _, term in stores_of(statement)]
        for term in (*stored, *loads_of(phase.statements)):
            total += weight
            reached += weight * _access(term, axis)
    size = max(estimate(axis.size, symbols), 1)
    if size <= _MAX_UNROLLED and isinstance(axis.size, int):
        return 0.0
    filled = size / (-(-size // lanes) * lanes)
    return filled * (reached / total if total else 1.0)


def _access(term: Size, axis: Axis) -> float:
    if axis.name not in free_symbols(term):
        return 1.0
    slope = coefficient(term, axis.name)
    if slope == 1:
        return 1.0
    return STRIDED if slope is not None else SCATTERED


def _parallel_axes(nest: LoopNest, capabilities: Capabilities, symbols: SymbolTable) -> tuple[str, ...]:
    """Return the fewest leading outer axes with at least eight points for each thread.

    The last axis, which may be vectorised, is left out where those before it suffice. An axis that transposed accesses
    are contiguous along is one of them: it is divided into tiles.
    """
    if capabilities.model.threads < 2:
        return ()
    names: list[str] = []
    total = 1
    tiled = transposed_axis(nest)
    summed = _summed_axes(nest)
    for axis in nest.outer:
        if axis.name in summed:
            break
        if total >= 8 * capabilities.model.threads and (tiled is None or tiled.name in names):
            break
        names.append(axis.name)
        total *= max(estimate(axis.size, symbols), 1)
    return tuple(names)


def _grain(
    nest: LoopNest,
    parallel: tuple[str, ...],
    traffic: int,
    work: int,
    symbols: SymbolTable,
    options: SchedulerOptions,
) -> int:
    """Return the fewest parallel points for a thread: those that move ``serial_bytes`` or take as long to compute."""
    count = estimate(points(a for a in nest.outer if a.name in parallel), symbols)
    if count <= 0:
        return 1
    bytes_per_point = max(traffic, work // 4, 1) / count
    return max(1, int(options.serial_bytes / bytes_per_point))
