"""Which scans of long rows programs of a GPU go through part by part, one going on from another.

They read a row once, where steps of their own for the parts of a row read it twice. A program that waits moves no
memory, so rows that are many have a program each as before, and columns, whose neighbours in memory are no neighbours
of the scan, are divided.
"""

from __future__ import annotations

from litz_ir.loops import Scan, UserCombiner
from litz_ir.plan import ScanStore, lookback_scan_of
from litz_ir.symbols import Size, SymbolTable, coefficient
from litz_ir.target import Capabilities
from litz_scheduler.cluster_size import CTAS_PER_SM
from litz_scheduler.cost import estimate, points
from litz_scheduler.loop_order import LoopNest
from litz_scheduler.options import SchedulerOptions

WIDE_STATE_RATIO = 4
"""How many times fewer points a part has whose values are more than 32 bits each, or several."""


def lookback_of(
    nest: LoopNest, capabilities: Capabilities, symbols: SymbolTable, options: SchedulerOptions
) -> int:
    """How many points of the row that a nest scans a program has; 0 where rows have a program each."""
    found = lookback_scan_of(nest.phases)
    if found is None:
        return 0
    axis, statement = found
    if any(coefficient(offset, axis.name) != 1 for _, offset in statement.targets):
        return 0
    return _part(statement, estimate(points(nest.outer), symbols), axis.size, capabilities, symbols, options)


def will_look_back(
    scan: Scan, capabilities: Capabilities, symbols: SymbolTable, options: SchedulerOptions
) -> bool:
    """True for a scan that needs no steps for its parts."""
    if any(value.type.layout.strides[scan.dimension] != 1 for value in scan.results):
        return False
    rows = estimate(points(scan.axes), symbols)
    return _part(scan, rows, scan.scan_axis.size, capabilities, symbols, options) > 0


def _part(
    scan: Scan | ScanStore,
    rows: int,
    length: Size,
    capabilities: Capabilities,
    symbols: SymbolTable,
    options: SchedulerOptions,
) -> int:
    if not capabilities.forward_progress or not capabilities.sm_count or not options.lookback:
        return 0
    part = options.lookback if _is_one_word(scan) else max(1, options.lookback // WIDE_STATE_RATIO)
    few = 2 * rows <= CTAS_PER_SM * capabilities.sm_count
    return part if few and estimate(length, symbols) >= 2 * part else 0


def _is_one_word(scan: Scan | ScanStore) -> bool:
    """True where what has been combined is one value of at most 32 bits."""
    bodies = scan.bodies if isinstance(scan, Scan) else scan.values
    held = scan.combiner.identity if isinstance(scan.combiner, UserCombiner) else bodies
    return len(held) == 1 and held[0].dtype.bits <= 32
