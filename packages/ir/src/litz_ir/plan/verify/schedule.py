"""The invariants of a kernel's schedule. Each is a ``check_*`` function that raises :class:`VerifyError`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from litz_ir.dtypes import i64
from litz_ir.plan.attention_blocks import attention_of
from litz_ir.plan.cluster import can_use_cluster
from litz_ir.plan.kernel import Kernel, Store
from litz_ir.plan.lookback_scan import lookback_scan_of
from litz_ir.plan.schedule import (
    Attention,
    CpuAttention,
    CpuLoops,
    CpuSchedule,
    CpuTiledSum,
    Foreach,
    InnerTile,
    LookbackScan,
    Matmul,
    Tile,
    TileLoops,
    TileRequest,
    cluster_size,
    least_values,
    scan_segment,
)
from litz_ir.plan.tiled_sums import tiled_sum_of
from litz_ir.scalar.verify import ErrorLocation
from litz_ir.symbols.quotients import cdiv
from litz_ir.symbols.ranges import bounds, extent
from litz_ir.symbols.term import Term

CHECK = "schedule"

MAX_NARROW_INDEX = 2**31 - 1
"""Largest index of 32 bits."""


def check_schedule(kernel: Kernel, location: ErrorLocation) -> None:
    """A schedule names axes of its kernel, its tiles cover all of them, and its numbers are in range."""
    schedule = kernel.schedule
    if isinstance(schedule, TileLoops | Matmul | Attention):
        _check_prefetch(kernel, schedule, location)
    if not isinstance(schedule, CpuSchedule | TileRequest):
        check_index_bits(kernel, schedule.index_bits, location)
    match schedule:
        case CpuLoops():
            _check_cpu_loops(kernel, schedule, location)
        case CpuAttention():
            if attention_of(kernel, schedule) is None:
                location.fail(
                    CHECK, "it has no weighted sums of values over the axes of the rows and columns"
                )
        case CpuTiledSum():
            if kernel.scratch or tiled_sum_of(kernel.outer, kernel.phases, schedule.columns) is None:
                location.fail(CHECK, f"it has no sum over a weight in panels of {schedule.columns} channels")
        case TileRequest():
            _check_tile_request(kernel, schedule, location)
        case TileLoops():
            _check_tile_loops(kernel, schedule, location)
        case Matmul():
            tiles = (schedule.rows, schedule.columns, schedule.summed)
            _check_tiles(tiles, location)
            _check_outer(kernel, (*schedule.batch, *schedule.rows.axes, *schedule.columns.axes), location)
            _check_inner(kernel, schedule.summed.axes, location)
        case Attention():
            _check_attention(kernel, schedule, location)
        case LookbackScan():
            pass
        case Foreach():
            if not kernel.subkernels:
                location.fail(CHECK, "a foreach schedule is given for a kernel without subkernels")
    form: type = type(schedule)
    for name, least in least_values(form).items():
        number = getattr(schedule, name)
        if number < least:
            location.fail(CHECK, f"{name} is {number}, at least {least} expected")


def _check_cpu_loops(kernel: Kernel, schedule: CpuLoops, location: ErrorLocation) -> None:
    """``parallel`` is a prefix of the outer axes, ``vector`` an inner or the last outer axis."""
    outer = tuple(axis.name for axis in kernel.outer)
    inner = {axis.name for phase in kernel.phases for axis in phase.axes}
    if schedule.parallel != outer[: len(schedule.parallel)]:
        location.fail(
            CHECK, f"the parallel axes {schedule.parallel} are not a prefix of the outer axes {outer}"
        )
    if schedule.vector is not None and schedule.vector not in inner | set(outer[-1:]):
        location.fail(
            CHECK, f"{schedule.vector} is vectorised, but is neither an inner axis nor the last outer one"
        )


def _check_tile_request(kernel: Kernel, schedule: TileRequest, location: ErrorLocation) -> None:
    """Blocks are given for axes of the kernel."""
    names = {axis.name for axis in kernel.outer} | {a.name for phase in kernel.phases for a in phase.axes}
    for axis, size in schedule.blocks:
        if axis not in names:
            location.fail(CHECK, f"a block is given for {axis}, which is not an axis")
        if size < 1:
            location.fail(CHECK, f"the block of {axis} is {size}, at least 1 expected")


def _check_tile_loops(kernel: Kernel, schedule: TileLoops, location: ErrorLocation) -> None:
    """Each outer axis is in one dimension of the tile, and each phase is pointwise or has all of its own axes
    covered.
    """
    if len(schedule.inner) != len(kernel.phases):
        location.fail(CHECK, f"the schedule covers {len(schedule.inner)} of {len(kernel.phases)} phases")
    if len(schedule.outer) > 3:
        location.fail(CHECK, f"a tile has {len(schedule.outer)} dimensions, at most 3 expected")
    _check_tiles(schedule.outer, location)
    pointwise: list[str] = []
    for phase, inner in zip(kernel.phases, schedule.inner, strict=True):
        own = [axis.name for axis in phase.axes]
        if inner is None:
            pointwise += own
            continue
        _check_tiles((inner,), location)
        if Counter(own) != Counter((*inner.serial, *inner.axes)):
            location.fail(CHECK, f"the axes {(*inner.serial, *inner.axes)} are not the phase's, {tuple(own)}")
        check_eviction(kernel, inner, location)
    _check_outer(kernel, [name for tile in schedule.outer for name in tile.axes], location, pointwise)
    if schedule.row_cluster > 1:
        _check_row_cluster(kernel, schedule, location)


def _check_row_cluster(kernel: Kernel, schedule: TileLoops, location: ErrorLocation) -> None:
    """A cluster that divides rows has a tile for each of its thread blocks, and one point of everything else."""
    last = schedule.outer[-1] if schedule.outer else Tile(())
    sizes = [axis.size for axis in kernel.outer if axis.name in last.axes]
    if len(sizes) != 1 or cdiv(sizes[0], last.block) != schedule.row_cluster:
        location.fail(CHECK, f"{schedule.row_cluster} thread blocks do not have the tiles of {last.axes}")
    blocks = [each.block for each in (*schedule.outer[:-1], *schedule.inner) if each is not None]
    if schedule.cluster > 1 or max(blocks, default=1) > 1:
        location.fail(CHECK, "a cluster that divides rows has more than one row at a time")


def check_eviction(kernel: Kernel, inner: InnerTile, location: ErrorLocation) -> None:
    """Eviction hints are given to a loop over tiles, at most one for each buffer."""
    hinted = Counter((*inner.evict_first, *inner.evict_last))
    if hinted and inner.persistent:
        location.fail(CHECK, f"eviction hints are given for {tuple(hinted)}, which no loop over tiles loads")
    names = {each.name for each in kernel.parameters}
    for name, count in hinted.items():
        if name not in names or count > 1:
            location.fail(CHECK, f"an eviction hint is given for {name}, which is no buffer or has two")


def _check_attention(kernel: Kernel, schedule: Attention, location: ErrorLocation) -> None:
    """The dimensions have the outer axes and those of one phase, each once.

    If that phase stores at every point, rows and summed axes may be exchanged.
    """
    inner = schedule.summed
    _check_tiles((schedule.rows, schedule.columns, inner), location)
    named = Counter(
        (*schedule.batch, *schedule.rows.axes, *schedule.columns.axes, *inner.serial, *inner.axes)
    )
    nests = [Counter(axis.name for axis in (*kernel.outer, *phase.axes)) for phase in kernel.phases]
    if named not in nests:
        location.fail(CHECK, f"its dimensions have the axes {tuple(named)}, which are those of no phase")


def _check_outer(
    kernel: Kernel, named: Iterable[str], location: ErrorLocation, more: Iterable[str] = ()
) -> None:
    """The dimensions of a tile have every outer axis once; axes of one point may be left out.

    ``more`` are axes of pointwise phases, which count as outer ones.
    """
    pointwise = frozenset(more)
    axes = (*kernel.outer, *(a for phase in kernel.phases for a in phase.axes if a.name in pointwise))
    counts, sizes = Counter(named), {axis.name: axis.size for axis in axes}
    for name, count in counts.items():
        if name not in sizes or count > 1:
            location.fail(
                CHECK,
                f"a dimension of the tile has {name}, which is not an outer axis or is in another dimension",
            )
    for name, size in sizes.items():
        if size != 1 and name not in counts:
            location.fail(CHECK, f"no dimension of the tile has the outer axis {name}")


def _check_inner(kernel: Kernel, named: Iterable[str], location: ErrorLocation) -> None:
    """The summed axes are those of a phase."""
    own = Counter(named)
    if all(own != Counter(axis.name for axis in phase.axes) for phase in kernel.phases):
        location.fail(CHECK, f"the summed axes {tuple(own)} are those of no phase")


def _check_tiles(tiles: Iterable[Tile | InnerTile], location: ErrorLocation) -> None:
    """The block of each tile is a power of two."""
    for tile in tiles:
        if tile.block < 1 or tile.block & tile.block - 1:
            location.fail(CHECK, f"the block of {tile.axes} is {tile.block}, a power of two expected")


def _check_prefetch(
    kernel: Kernel, schedule: TileLoops | Matmul | Attention, location: ErrorLocation
) -> None:
    """Phases with prefetched loads exist."""
    for number in schedule.prefetch:
        if number >= len(kernel.phases):
            location.fail(
                CHECK, f"loads of phase {number} are prefetched, but there are {len(kernel.phases)} phases"
            )


def check_index_bits(kernel: Kernel, bits: int, location: ErrorLocation) -> None:
    """Indices have 32 or 64 bits, and 32 only if no element is known to be stored beyond them."""
    if bits not in (32, 64):
        location.fail(CHECK, f"indices have {bits} bits, 32 or 64 expected")
    if bits == 64:
        return
    axes = (*kernel.outer, *(axis for phase in kernel.phases for axis in phase.axes))
    ranges = {info.name: info.range for info in kernel.symbols} | {a.name: extent(a.size) for a in axes}
    for statement in (each for phase in kernel.phases for each in phase.statements):
        if isinstance(statement, Store) and isinstance(statement.offset, Term):
            high = bounds(statement.offset, ranges).high
            if statement.offset.is_polynomial and high is not None and high > MAX_NARROW_INDEX:
                location.fail(
                    CHECK, f"indices have 32 bits, but element {high} of {statement.buffer} is stored"
                )


def check_cluster(kernel: Kernel, location: ErrorLocation) -> None:
    """A cluster has a kernel whose outer points can be divided, and a workspace."""
    if cluster_size(kernel.schedule) == 1:
        return
    if not can_use_cluster(kernel.phases):
        location.fail("cluster", "its outer points cannot be divided among the thread blocks of a cluster")
    _check_workspace(kernel, "cluster", location)


def check_lookback(kernel: Kernel, location: ErrorLocation) -> None:
    """A look-back scan has a kernel that only scans, a segment that is a power of two, and a workspace."""
    segment = scan_segment(kernel.schedule)
    if not segment:
        return
    if segment & segment - 1:
        location.fail("lookback", f"a segment has {segment} points, a power of two expected")
    if lookback_scan_of(kernel.phases) is None:
        location.fail("lookback", "a look-back scan needs one scan along one axis and nothing else")
    _check_workspace(kernel, "lookback", location)


def _check_workspace(kernel: Kernel, rule: str, location: ErrorLocation) -> None:
    """A kernel whose thread blocks communicate has one workspace parameter of ``i64``."""
    if [each.dtype for each in kernel.parameters if each.access == "workspace"] != [i64]:
        location.fail(rule, "its thread blocks communicate, so it needs one workspace parameter of i64")
