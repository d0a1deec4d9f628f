"""Which axes run on threads and which along the lanes of a register."""

from __future__ import annotations

from litz_ir.loops import Axis
from litz_ir.plan import CpuLoops, ScanStore, Schedule, TileRequest
from litz_ir.symbols import Size, SymbolTable, coefficient, free_symbols
from litz_ir.target import Capabilities
from litz_scheduler.cluster_size import chosen_cluster_size
from litz_scheduler.cost import estimate, points
from litz_scheduler.lookback_scan import lookback_of
from litz_scheduler.loop_order import LoopNest, loads_of, stores_of
from litz_scheduler.options import Lanes, SchedulerOptions

LANE_BYTES = 4
"""Lanes are counted in elements of the commonest compute type."""


def schedule_nest(
    nest: LoopNest,
    traffic: int,
    work: int,
    capabilities: Capabilities,
    symbols: SymbolTable,
    options: SchedulerOptions,
    scratch: bool = False,
) -> Schedule:
    """A schedule for a CPU (vector and parallel axes) or, for a device with blocks, a request that has the cluster size
    of a reduction and the segment of a look-back scan: the device's target decides the rest. ``scratch`` says that the
    nest keeps arrays per outer point, so outer points cannot share lanes."""
    if capabilities.max_tile_elements:
        cluster = chosen_cluster_size(nest, capabilities, symbols, options)
        return TileRequest(cluster, lookback_of(nest, capabilities, symbols, options))
    vector = _vector_axis(nest, capabilities, symbols, options.lanes, scratch)
    parallel = _parallel_axes(nest, capabilities, symbols)
    grain = _grain(nest, parallel, traffic, work, symbols, options)
    return CpuLoops(parallel=parallel, vector=vector, unroll=options.unroll, grain=grain)


def _vector_axis(
    nest: LoopNest, capabilities: Capabilities, symbols: SymbolTable, wanted: Lanes, scratch: bool
) -> str | None:
    if not capabilities.vector_bytes or wanted == "none":
        return None
    lanes = capabilities.vector_bytes // LANE_BYTES
    candidates = [axes[-1] for axes in (nest.inner, nest.outer) if axes]
    if scratch:
        candidates = [a for a in candidates if a in nest.inner]
    scans = any(isinstance(s, ScanStore) for p in nest.phases for s in p.statements)
    if scans:
        candidates = [a for a in candidates if a not in nest.inner]
    if wanted != "best":
        candidates = [a for a in candidates if (a in nest.inner) == (wanted == "inner")] or candidates
    scores = {axis.name: _efficiency(nest, axis, lanes, symbols) for axis in candidates}
    best = max(scores, key=lambda name: scores[name], default=None)
    return best if best is not None and scores[best] >= WORTHWHILE else None


STRIDED, SCATTERED = 0.15, 0.08
"""What a load lane by lane is worth beside one of a whole register: at a constant stride, or anywhere."""

PAIR = 2
"""An axis as short as the parts of a complex number is unrolled by the compiler, and costs less without lanes."""

WORTHWHILE = 0.02
"""Below this share of a register's rate, lanes gain nothing over scalar code."""


def _efficiency(nest: LoopNest, axis: Axis, lanes: int, symbols: SymbolTable) -> float:
    """The share of a register's rate that accesses reach with lanes along ``axis``, weighted by how often each happens;
    an axis that does not fill its registers wastes the rest."""
    total = reached = 0.0
    for phase in nest.phases:
        weight = float(max(estimate(points(phase.axes), symbols), 1)) if phase.axes else 1.0
        stored = [term for statement in phase.statements for _, term in stores_of(statement)]
        for term in (*stored, *loads_of(phase.statements)):
            total += weight
            reached += weight * _access(term, axis)
    size = max(estimate(axis.size, symbols), 1)
    if size <= PAIR and isinstance(axis.size, int):
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
    """Leading outer axes, as few as give every thread several points; the last one, along which lanes run, is left
    whole when the ones before it suffice."""
    if capabilities.threads < 2:
        return ()
    names: list[str] = []
    total = 1
    for axis in nest.outer:
        if total >= 8 * capabilities.threads:
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
    """How many parallel points are worth a thread: enough for ``serial_bytes`` of traffic or as much arithmetic."""
    count = estimate(points(a for a in nest.outer if a.name in parallel), symbols)
    if count <= 0:
        return 1
    effort = max(traffic, work // 4, 1) / count
    return max(1, int(options.serial_bytes / effort))
