"""The invariants of a kernel's schedule. Each is a ``check_*`` function that raises :class:`VerifyError`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from litz_ir.dtypes import i64
from litz_ir.plan.cluster import can_use_cluster
from litz_ir.plan.kernel import Kernel
from litz_ir.plan.lookback_scan import lookback_scan_of
from litz_ir.plan.schedule import (
    Attention,
    CpuLoops,
    Foreach,
    LookbackScan,
    Matmul,
    Tile,
    TileLoops,
    TileRequest,
    cluster_size,
    scan_segment,
)
from litz_ir.scalar.verify import ErrorLocation

CHECK = "schedule"


def check_schedule(kernel: Kernel, place: ErrorLocation) -> None:
    """A schedule names axes of its kernel, each of its tiles covers what it has to, and numbers are in their ranges."""
    schedule = kernel.schedule
    if isinstance(schedule, TileLoops | Matmul | Attention):
        check_prefetch(kernel, schedule, place)
    match schedule:
        case CpuLoops():
            check_cpu_loops(kernel, schedule, place)
        case TileRequest():
            check_tile_request(kernel, schedule, place)
        case TileLoops():
            check_tile_loops(kernel, schedule, place)
        case Matmul():
            tiles = (schedule.rows, schedule.columns, schedule.summed)
            check_tiles(tiles, place)
            check_outer(kernel, (*schedule.batch, *schedule.rows.axes, *schedule.columns.axes), place)
            check_inner(kernel, schedule.summed.axes, place)
            check_numbers(
                place, warps=(schedule.warps, 1), stages=(schedule.stages, 1), grid=(schedule.grid, 0)
            )
        case Attention():
            check_attention(kernel, schedule, place)
        case LookbackScan():
            check_numbers(place, segment=(schedule.segment, 1), warps=(schedule.warps, 1))
        case Foreach():
            check_numbers(place, warps=(schedule.warps, 1))
            if not kernel.subkernels:
                place.fail(CHECK, "it has no subkernels, which a foreach schedule is for")


def check_cpu_loops(kernel: Kernel, schedule: CpuLoops, place: ErrorLocation) -> None:
    """``parallel`` is a prefix of the outer axes, ``vector`` an inner or the last outer axis."""
    outer = tuple(axis.name for axis in kernel.outer)
    inner = {axis.name for phase in kernel.phases for axis in phase.axes}
    if schedule.parallel != outer[: len(schedule.parallel)]:
        place.fail(CHECK, f"the parallel axes {schedule.parallel} are no prefix of the outer axes {outer}")
    if schedule.vector is not None and schedule.vector not in inner | set(outer[-1:]):
        place.fail(
            CHECK, f"{schedule.vector} runs along the lanes, but is no inner axis nor the last outer one"
        )
    check_numbers(place, lanes=(schedule.lanes, 0), unroll=(schedule.unroll, 1), grain=(schedule.grain, 1))


def check_tile_request(kernel: Kernel, schedule: TileRequest, place: ErrorLocation) -> None:
    """Blocks are given for axes of the kernel."""
    names = {axis.name for axis in kernel.outer} | {a.name for phase in kernel.phases for a in phase.axes}
    for axis, size in schedule.blocks:
        if axis not in names:
            place.fail(CHECK, f"a block is given for {axis}, which is no axis")
        if size < 1:
            place.fail(CHECK, f"the block of {axis} is {size}")
    check_numbers(
        place,
        cluster=(schedule.cluster, 1),
        segment=(schedule.segment, 0),
        warps=(schedule.warps, 1),
        stages=(schedule.stages, 0),
        grid=(schedule.grid, 0),
    )


def check_tile_loops(kernel: Kernel, schedule: TileLoops, place: ErrorLocation) -> None:
    """The tile has each outer axis in one dimension, and each phase either is a point of the tile or has all of its own
    axes covered."""
    if len(schedule.inner) != len(kernel.phases):
        place.fail(CHECK, f"it covers {len(schedule.inner)} phases of {len(kernel.phases)}")
    if len(schedule.outer) > 3:
        place.fail(CHECK, f"a tile has {len(schedule.outer)} dimensions, three at most expected")
    check_tiles(schedule.outer, place)
    pointwise: list[str] = []
    for phase, inner in zip(kernel.phases, schedule.inner, strict=True):
        own = [axis.name for axis in phase.axes]
        if inner is None:
            pointwise += own
            continue
        check_tiles((Tile(inner.axes, inner.block),), place)
        if Counter(own) != Counter((*inner.serial, *inner.axes)):
            place.fail(CHECK, f"the axes {(*inner.serial, *inner.axes)} are not the phase's, {tuple(own)}")
    check_outer(kernel, [name for tile in schedule.outer for name in tile.axes], place, pointwise)
    check_numbers(
        place, warps=(schedule.warps, 1), stages=(schedule.stages, 1), cluster=(schedule.cluster, 1)
    )


def check_attention(kernel: Kernel, schedule: Attention, place: ErrorLocation) -> None:
    """Its dimensions have the outer axes and those of the phase that sums, each once; where that phase stores at every
    point, either may be rows or summed ones."""
    inner = schedule.summed
    check_tiles((schedule.rows, schedule.columns, Tile(inner.axes, inner.block)), place)
    named = Counter(
        (*schedule.batch, *schedule.rows.axes, *schedule.columns.axes, *inner.serial, *inner.axes)
    )
    nests = [Counter(axis.name for axis in (*kernel.outer, *phase.axes)) for phase in kernel.phases]
    if named not in nests:
        place.fail(CHECK, f"its dimensions have the axes {tuple(named)}, which are those of no phase")
    check_numbers(place, warps=(schedule.warps, 1), stages=(schedule.stages, 1))


def check_outer(kernel: Kernel, named: Iterable[str], place: ErrorLocation, more: Iterable[str] = ()) -> None:
    """The tile's dimensions have every outer axis once; axes of one point may be left out. ``more`` are axes of
    pointwise phases, which are outer ones."""
    pointwise = frozenset(more)
    axes = (*kernel.outer, *(a for phase in kernel.phases for a in phase.axes if a.name in pointwise))
    counts, sizes = Counter(named), {axis.name: axis.size for axis in axes}
    for name, count in counts.items():
        if name not in sizes or count > 1:
            place.fail(
                CHECK, f"a dimension of the tile has {name}, which is no outer axis, or in another one"
            )
    for name, size in sizes.items():
        if size != 1 and name not in counts:
            place.fail(CHECK, f"no dimension of the tile has the outer axis {name}")


def check_inner(kernel: Kernel, named: Iterable[str], place: ErrorLocation) -> None:
    """The summed axes are those of a phase."""
    own = Counter(named)
    if all(own != Counter(axis.name for axis in phase.axes) for phase in kernel.phases):
        place.fail(CHECK, f"the summed axes {tuple(own)} are those of no phase")


def check_tiles(tiles: Iterable[Tile], place: ErrorLocation) -> None:
    """A block is a power of two."""
    for tile in tiles:
        if tile.block < 1 or tile.block & tile.block - 1:
            place.fail(CHECK, f"the block of {tile.axes} is {tile.block}, a power of two expected")


def check_prefetch(kernel: Kernel, schedule: TileLoops | Matmul | Attention, place: ErrorLocation) -> None:
    """Loads are prefetched in phases that there are."""
    for number in schedule.prefetch:
        if number >= len(kernel.phases):
            place.fail(CHECK, f"loads of phase {number} are prefetched, of {len(kernel.phases)} phases")


def check_numbers(place: ErrorLocation, **numbers: tuple[int, int]) -> None:
    """Each number, by name, is not below its least value."""
    for name, (number, least) in numbers.items():
        if number < least:
            place.fail(CHECK, f"{name} is {number}, at least {least} expected")


def check_cluster(kernel: Kernel, place: ErrorLocation) -> None:
    """Thread blocks reduce outer points together only where they can, and have scratch of words for it."""
    if cluster_size(kernel.schedule) == 1:
        return
    if not can_use_cluster(kernel.phases):
        place.fail("sharing", "programs share its outer points, but each needs what another one stores")
    check_workspace(kernel, "sharing", "programs share its outer points", place)


def check_lookback(kernel: Kernel, place: ErrorLocation) -> None:
    """Thread blocks scan segments of rows only where a kernel does nothing else, and have scratch of words for it."""
    segment = scan_segment(kernel.schedule)
    if not segment:
        return
    if segment & segment - 1:
        place.fail("relay", f"a part has {segment} points, a power of two expected")
    if lookback_scan_of(kernel.phases) is None:
        place.fail("relay", "programs scan parts of its rows, but it does not scan alone, along one axis")
    check_workspace(kernel, "relay", "programs scan parts of its rows", place)


def check_workspace(kernel: Kernel, rule: str, what: str, place: ErrorLocation) -> None:
    """Thread blocks that wait for one another have one scratch parameter of words."""
    if [each.dtype for each in kernel.parameters if each.access == "workspace"] != [i64]:
        place.fail(rule, f"{what} without one scratch parameter of i64")
