"""Selection of scans that run as a decoupled look-back scan on a GPU.

CTAs scan segments of a row, each continuing from the results of its predecessors. This reads a row once, where a split
scan reads it twice. A CTA that waits moves no memory, so rows that are numerous enough have one CTA each, and scans
along a strided dimension are split.
"""

from __future__ import annotations

from litz_ir.loops import Scan, UserCombiner
from litz_ir.plan import ScanStore, lookback_scan_of
from litz_ir.symbols import Size, SymbolTable, coefficient
from litz_ir.target import Capabilities
from litz_scheduler.analysis.cost import estimate, points
from litz_scheduler.analysis.cost_model import CTAS_PER_SM
from litz_scheduler.analysis.loop_order import LoopNest
from litz_scheduler.options import SchedulerOptions

_WIDE_STATE_RATIO = 4
"""The divisor of the points for each CTA where the running state is wider than one 32-bit value."""


def lookback_of(
    nest: LoopNest, capabilities: Capabilities, symbols: SymbolTable, options: SchedulerOptions
) -> int:
    """Return the points of a row that each CTA of a nest scans; 0 where one CTA scans a whole row."""
    scan = lookback_scan_of(nest.phases)
    if scan is None:
        return 0
    axis, statement = scan
    if any(coefficient(offset, axis.name) != 1 for _, offset in statement.targets):
        return 0
    return _points_per_cta(
        statement, estimate(points(nest.outer), symbols), axis.size, capabilities, symbols, options
    )


def will_look_back(
    scan: Scan, capabilities: Capabilities, symbols: SymbolTable, options: SchedulerOptions
) -> bool:
    """Return whether a scan runs as a look-back scan, so that it is not split into several kernels."""
    if any(value.type.layout.strides[scan.dimension] != 1 for value in scan.results):
        return False
    rows = estimate(points(scan.axes), symbols)
    return _points_per_cta(scan, rows, scan.scan_axis.size, capabilities, symbols, options) > 0


def _points_per_cta(
    scan: Scan | ScanStore,
    rows: int,
    length: Size,
    capabilities: Capabilities,
    symbols: SymbolTable,
    options: SchedulerOptions,
) -> int:
    if not capabilities.forward_progress or not capabilities.is_gpu or not options.lookback:
        return 0
    points_per_cta = options.lookback if _is_one_word(scan) else max(1, options.lookback // _WIDE_STATE_RATIO)
    few = 2 * rows <= CTAS_PER_SM * capabilities.model.sm_count
    return points_per_cta if few and estimate(length, symbols) >= 2 * points_per_cta else 0


def _is_one_word(scan: Scan | ScanStore) -> bool:
    """Return whether the running state is one value of at most 32 bits."""
    bodies = scan.bodies if isinstance(scan, Scan) else scan.values
    state = scan.combiner.identity if isinstance(scan.combiner, UserCombiner) else bodies
    return scan.combiner.components == 1 and state[0].dtype.bits <= 32
