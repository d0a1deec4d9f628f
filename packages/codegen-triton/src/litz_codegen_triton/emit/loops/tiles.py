"""Tilings of scheduled kernels: the schedule with axes instead of names, and the sizes that follow from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from litz_ir.errors import CodegenError
from litz_ir.loops import Axis
from litz_ir.plan import (
    Attention,
    InnerTile,
    Kernel,
    LaunchOrder,
    LookbackScan,
    Matmul,
    Operand,
    Tile,
    TileLoops,
)
from litz_ir.symbols import Size, cdiv, mul, product

MAX_UNROLLED = 32
"""Most points of a loop that is unrolled: those of a window of pooling, or of a few columns."""

_CHUNK_ALIGNMENT = 16
"""Elements of which a thread block's chunk of a row is a multiple, so that vectorised accesses of it are aligned."""


@dataclass(frozen=True, slots=True)
class TileDim:
    """One dimension of the tile of outer points."""

    letter: str
    """``x``, ``y`` or ``z``, from the fastest dimension."""

    axes: tuple[Axis, ...]
    """Outer axes of the dimension, flattened in row-major order."""

    block: int
    """Points of the tile along the dimension; with 1 its index is a scalar."""

    @property
    def size(self) -> Size:
        """Points of the dimension."""
        return product(axis.size for axis in self.axes)

    @property
    def block_count(self) -> Size:
        """Tiles along the dimension."""
        return self.size if self.block == 1 else cdiv(self.size, self.block)


@dataclass(frozen=True, slots=True)
class InnerLoop:
    """The cover of a phase's own axes."""

    serial: tuple[Axis, ...]
    """Axes that a loop around the tile visits point by point."""

    axes: tuple[Axis, ...]
    """Axes that the tile covers, flattened in row-major order."""

    block: int
    """Points of the tile along ``axes``."""

    persistent: bool
    """True where the tile holds all points at once; False for a loop over tiles."""

    cluster_size: int = 1
    """Thread blocks that have one chunk of ``axes`` each."""

    eviction: Mapping[str, str] = field(default_factory=dict)
    """The ``eviction_policy`` of loads by buffer, for buffers that have one."""

    @property
    def size(self) -> Size:
        """Points of ``axes``."""
        return product(axis.size for axis in self.axes)

    @property
    def unrolled(self) -> int:
        """Points that each thread visits one by one, in an unrolled loop; 0 for a loop over tiles."""
        alone = self.block == 1 and self.cluster_size == 1 and not self.persistent
        return self.size if alone and isinstance(self.size, int) and self.size <= MAX_UNROLLED else 0

    @property
    def points_per_cta(self) -> Size:
        """Points of ``axes`` that a thread block has; the last ones of a cluster may have fewer, or none."""
        if self.cluster_size == 1:
            return self.size
        unit = _CHUNK_ALIGNMENT if self.persistent else self.block
        return mul(cdiv(cdiv(self.size, self.cluster_size), unit), unit)

    @property
    def even(self) -> bool:
        """True where all thread blocks of a cluster have the same number of points."""
        return self.size == mul(self.points_per_cta, self.cluster_size)


@dataclass(frozen=True, slots=True)
class Tiling:
    """The tiles of a kernel."""

    outer: tuple[TileDim, ...]
    """Dimensions of the tile of outer points, the slowest first; ``y`` and ``x`` of a matmul or attention are its rows
    and columns."""

    inner: tuple[InnerLoop | None, ...]
    """Cover of each phase's own axes; ``None`` for a phase of one point. The serial axes of an attention have one point
    in each tile of the others."""

    warps: int
    """Warps of a thread block."""

    narrow: bool
    """True where indices have 32 bits, False where they have 64."""

    stages: int = 1
    """Software pipelining stages of a loop that uses ``tl.dot``, or that only accumulates."""

    uses_dot: bool = False
    """True for a matmul or attention, which uses ``tl.dot``."""

    cluster_size: int = 1
    """Thread blocks of a cluster, which reduce each tile of outer points."""

    row_cluster: int = 1
    """Thread blocks of a cluster that have the tiles along the last dimension."""

    lookback: int = 0
    """Points of a row that a thread block of a look-back scan has; 0 for other kernels."""

    max_grid_size: int = 0
    """Most thread blocks of a persistent matmul; 0 for one thread block a tile."""

    group: int = 1
    """Rows of tiles in a group of a matmul's launch order."""

    descriptors: tuple[Operand, ...] = ()
    """Operands of a matmul that are read through tensor descriptors."""

    prefetch: tuple[int, ...] = ()
    """Numbers of the phases whose loads are issued first."""

    order: LaunchOrder = "batch"
    """Order of thread blocks."""

    summed_descriptors: bool = False
    """True for an attention that reads tiles of K and V through tensor descriptors where their memory allows it."""

    @property
    def grid_size(self) -> Size:
        """Thread blocks of a launch; 0 where an outer axis is empty."""
        count = mul(self.ctas_per_tile, self.tile_count)
        return min(count, self.max_grid_size) if self.max_grid_size and isinstance(count, int) else count

    @property
    def row(self) -> TileDim | None:
        """The last dimension of a loop's tiles where one tile, or those of a cluster, have all of its points; else
        ``None``."""
        last = self.outer[-1] if self.outer and not self.uses_dot else None
        return last if last is not None and last.block > 1 and last.block_count == self.row_cluster else None

    @property
    def tile_count(self) -> Size:
        """Tiles of outer points."""
        return product(dim.block_count for dim in self.outer)

    @property
    def ctas_per_tile(self) -> Size:
        """Thread blocks that have one tile of outer points: those of a cluster, or the segments of a scanned row."""
        if not self.lookback:
            return self.cluster_size
        (inner,) = self.inner
        assert inner is not None, "a look-back scan has an axis of its own"
        return cdiv(inner.size, self.lookback)


def tiling(kernel: Kernel) -> Tiling:
    """Return the tiling of a scheduled kernel.

    Raises ``CodegenError`` for a kernel that is not scheduled, or whose schedule has a form that the kernel does not.
    """
    match kernel.schedule:
        case TileLoops():
            return _loops(kernel, kernel.schedule)
        case Matmul():
            return _matmul(kernel, kernel.schedule)
        case Attention():
            return _attention(kernel, kernel.schedule)
        case LookbackScan():
            return _lookback_scan(kernel, kernel.schedule)
    raise CodegenError(
        f"kernel {kernel.name} is not scheduled for a GPU", hint="schedule its plan with the target first"
    )


def _loops(kernel: Kernel, schedule: TileLoops) -> Tiling:
    pointwise = [p.axes for p, each in zip(kernel.phases, schedule.inner, strict=True) if each is None]
    known = _by_name(kernel.outer, *pointwise)
    letters = "zyx"[-len(schedule.outer) :]
    outer = tuple(_dim(letter, tile, known) for letter, tile in zip(letters, schedule.outer))
    inner = tuple(
        None if each is None else _inner(each, _by_name(phase.axes), schedule.cluster)
        for phase, each in zip(kernel.phases, schedule.inner, strict=True)
    )
    return Tiling(
        outer,
        inner,
        schedule.warps,
        schedule.index_bits == 32,
        stages=schedule.stages,
        cluster_size=schedule.cluster,
        row_cluster=schedule.row_cluster,
        prefetch=schedule.prefetch,
    )


def _matmul(kernel: Kernel, schedule: Matmul) -> Tiling:
    return Tiling(
        _rows_and_columns(schedule, kernel),
        _summing(kernel, InnerTile(schedule.summed.axes, schedule.summed.block)),
        schedule.warps,
        schedule.index_bits == 32,
        stages=schedule.stages,
        uses_dot=True,
        max_grid_size=schedule.grid,
        group=schedule.group,
        descriptors=schedule.descriptors,
        prefetch=schedule.prefetch,
    )


def _attention(kernel: Kernel, schedule: Attention) -> Tiling:
    return Tiling(
        _rows_and_columns(schedule, kernel),
        _summing(kernel, schedule.summed),
        schedule.warps,
        schedule.index_bits == 32,
        stages=schedule.stages,
        uses_dot=True,
        prefetch=schedule.prefetch,
        order=schedule.order,
        summed_descriptors=schedule.descriptors,
    )


def _lookback_scan(kernel: Kernel, schedule: LookbackScan) -> Tiling:
    """Return the tiling of a look-back scan: one segment of one row for each thread block."""
    (phase,) = kernel.phases
    outer = (TileDim("x", kernel.outer, 1),) if kernel.outer else ()
    inner = InnerLoop((), phase.axes, schedule.segment, False)
    return Tiling(outer, (inner,), schedule.warps, schedule.index_bits == 32, lookback=schedule.segment)


def _rows_and_columns(schedule: Matmul | Attention, kernel: Kernel) -> tuple[TileDim, ...]:
    known = _by_name(kernel.outer, *(phase.axes for phase in kernel.phases))
    batch = (_dim("z", Tile(schedule.batch), known),) if schedule.batch else ()
    return (*batch, _dim("y", schedule.rows, known), _dim("x", schedule.columns, known))


def _summing(kernel: Kernel, tile: InnerTile) -> tuple[InnerLoop | None, ...]:
    """Return the covers of all phases: ``tile`` for the one that has axes, or is the only one; none for the others."""
    single = len(kernel.phases) == 1
    return tuple(
        _inner(tile, _by_name(kernel.outer, phase.axes), 1) if single or phase.axes else None
        for phase in kernel.phases
    )


def _inner(tile: InnerTile, known: Mapping[str, Axis], cluster_size: int) -> InnerLoop:
    return InnerLoop(
        _axes(tile.serial, known),
        _axes(tile.axes, known),
        tile.block,
        tile.persistent,
        cluster_size,
        dict.fromkeys(tile.evict_first, "evict_first") | dict.fromkeys(tile.evict_last, "evict_last"),
    )


def _dim(letter: str, tile: Tile, known: Mapping[str, Axis]) -> TileDim:
    return TileDim(letter, _axes(tile.axes, known), tile.block)


def _axes(names: Sequence[str], known: Mapping[str, Axis]) -> tuple[Axis, ...]:
    return tuple(known[name] for name in names)


def _by_name(*nests: Sequence[Axis]) -> dict[str, Axis]:
    return {axis.name: axis for axes in nests for axis in axes}


def next_power_of_two(number: int) -> int:
    """Return the smallest power of two that is at least ``number``, and at least 1."""
    return 1 << max(0, number - 1).bit_length()
