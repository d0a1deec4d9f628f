"""The tiles of a scheduled kernel: its schedule over the kernel's own axes, with what follows from both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from litz_codegen_triton.emit.attention_scores import score_kernel
from litz_codegen_triton.emit.contraction import Contraction, contraction
from litz_codegen_triton.emit.fused_attention import FusedAttention, fused_attention
from litz_ir.errors import CodegenError
from litz_ir.loops import Axis
from litz_ir.plan import Attention, InnerTile, Kernel, LookbackScan, Matmul, Operand, Tile, TileLoops
from litz_ir.symbols import Size, SymbolTable, cdiv, mul, product

WARP = 32
"""The threads of a warp."""

CHUNK_ALIGNMENT = 16
"""Pieces of a row begin at multiples of so many elements, and so where an access of 16 bytes may."""


@dataclass(frozen=True, slots=True)
class TileDim:
    """Outer axes flattened into one dimension of the tile, row-major; ``block`` 1 means one point per program, which
    makes its index a scalar."""

    letter: str
    axes: tuple[Axis, ...]
    block: int

    @property
    def size(self) -> Size:
        return product(axis.size for axis in self.axes)

    @property
    def block_count(self) -> Size:
        """How many programs lie side by side along it."""
        return self.size if self.block == 1 else cdiv(self.size, self.block)


@dataclass(frozen=True, slots=True)
class InnerLoop:
    """How a phase's own axes are covered: ``serial`` ones by a loop over single points, ``axes`` (flattened) by a tile
    of ``block``, at once when ``persistent``, else in a loop. ``cluster_size`` programs have one piece of ``axes``
    each."""

    serial: tuple[Axis, ...]
    axes: tuple[Axis, ...]
    block: int
    persistent: bool
    cluster_size: int = 1

    @property
    def size(self) -> Size:
        return product(axis.size for axis in self.axes)

    @property
    def points_per_cta(self) -> Size:
        """The points of a program: the last ones have fewer where that is not a part of ``size``."""
        if self.cluster_size == 1:
            return self.size
        whole = CHUNK_ALIGNMENT if self.persistent else self.block
        return mul(cdiv(cdiv(self.size, self.cluster_size), whole), whole)

    @property
    def even(self) -> bool:
        """True where all programs have as many points."""
        return self.size == mul(self.points_per_cta, self.cluster_size)


@dataclass(frozen=True, slots=True)
class Tiling:
    """``outer`` from slowest to fastest; one entry of ``inner`` per phase (``None``: the phase is one point).

    ``contraction`` or ``attention`` is the one that the kernel computes by products of tiles, if it does: then ``y``
    and ``x`` are its rows and columns. ``stages`` says how many tiles are on their way at a time: of its factors, or
    of what a loop that only accumulates reads. The summed axes that a chain's ``InnerLoop`` has as serial ones are
    one point for each tile of the others. ``cluster_size`` programs have each tile of outer points together.
    ``lookback`` is how many points of a scanned row each of the programs has that go on from one another, 0
    elsewhere. A contraction's tiles are taken in turn by ``max_grid_size`` programs at most, where that is not 0;
    ``descriptors`` names those of its factors that are read by descriptors, ``prefetch`` the phases whose loads come
    first.
    """

    outer: tuple[TileDim, ...]
    inner: tuple[InnerLoop | None, ...]
    warps: int
    contraction: Contraction | None = None
    stages: int = 1
    attention: FusedAttention | None = None
    cluster_size: int = 1
    lookback: int = 0
    max_grid_size: int = 0
    descriptors: tuple[Operand, ...] = ()
    prefetch: tuple[int, ...] = ()

    @property
    def uses_dot(self) -> bool:
        """True where the kernel multiplies tiles."""
        return self.contraction is not None or self.attention is not None

    @property
    def points_per_thread(self) -> int:
        """How many outer points of a tile a thread has, rounded up."""
        return -(-prod(dim.block for dim in self.outer) // (WARP * self.warps))

    @property
    def grid_size(self) -> Size:
        """How many programs a launch has; 0 when an outer axis is empty."""
        count = mul(self.ctas_per_tile, self.tile_count)
        return min(count, self.max_grid_size) if self.max_grid_size and isinstance(count, int) else count

    @property
    def tile_count(self) -> Size:
        """How many tiles of outer points there are."""
        return product(dim.block_count for dim in self.outer)

    @property
    def ctas_per_tile(self) -> Size:
        """How many programs have parts of one tile of outer points."""
        if not self.lookback:
            return self.cluster_size
        (inner,) = self.inner
        assert inner is not None, "a relay runs along an axis"
        return cdiv(inner.size, self.lookback)


def tiling(kernel: Kernel) -> Tiling:
    """The tiles of a scheduled kernel. Raises ``CodegenError`` for one that is not scheduled, or whose schedule has a
    form that is none of the kernel's."""
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
        stages=schedule.stages,
        cluster_size=schedule.cluster,
        prefetch=schedule.prefetch,
    )


def _matmul(kernel: Kernel, schedule: Matmul) -> Tiling:
    found = contraction(kernel, SymbolTable(kernel.symbols))
    if found is None:
        raise CodegenError(f"kernel {kernel.name} is scheduled as a matmul, which it is not")
    axes = _by_name(kernel.outer, kernel.phases[found.phase].axes)
    tile = InnerTile(schedule.summed.axes, schedule.summed.block)
    return Tiling(
        _rows_and_columns(schedule, axes),
        _in_phase(kernel, found.phase, _inner(tile, axes, 1)),
        schedule.warps,
        found,
        schedule.stages,
        max_grid_size=schedule.grid,
        descriptors=schedule.descriptors,
        prefetch=schedule.prefetch,
    )


def _attention(kernel: Kernel, schedule: Attention) -> Tiling:
    known = SymbolTable(kernel.symbols)
    found = fused_attention(kernel, known) or score_kernel(kernel, known)
    if found is None:
        raise CodegenError(f"kernel {kernel.name} is scheduled as attention, which it is not")
    axes = _by_name(kernel.outer, kernel.phases[found.phase].axes)
    outer = _rows_and_columns(schedule, axes)
    inner = _in_phase(kernel, found.phase, _inner(schedule.summed, axes, 1))
    return Tiling(
        outer,
        inner,
        schedule.warps,
        attention=found,
        stages=schedule.stages,
        prefetch=schedule.prefetch,
    )


def _lookback_scan(kernel: Kernel, schedule: LookbackScan) -> Tiling:
    """A segment of a row for each program."""
    (phase,) = kernel.phases
    outer = (TileDim("x", kernel.outer, 1),) if kernel.outer else ()
    inner = InnerLoop((), phase.axes, schedule.segment, False)
    return Tiling(outer, (inner,), schedule.warps, lookback=schedule.segment)


def _rows_and_columns(schedule: Matmul | Attention, known: Mapping[str, Axis]) -> tuple[TileDim, ...]:
    batch = (_dim("z", Tile(schedule.batch), known),) if schedule.batch else ()
    return (*batch, _dim("y", schedule.rows, known), _dim("x", schedule.columns, known))


def _in_phase(kernel: Kernel, number: int, inner: InnerLoop) -> tuple[InnerLoop | None, ...]:
    """The cover of the one phase that sums; the others are points."""
    return tuple(inner if place == number else None for place in range(len(kernel.phases)))


def _inner(tile: InnerTile, known: Mapping[str, Axis], pieces: int) -> InnerLoop:
    return InnerLoop(_axes(tile.serial, known), _axes(tile.axes, known), tile.block, tile.persistent, pieces)


def _dim(letter: str, tile: Tile, known: Mapping[str, Axis]) -> TileDim:
    return TileDim(letter, _axes(tile.axes, known), tile.block)


def _axes(names: Sequence[str], known: Mapping[str, Axis]) -> tuple[Axis, ...]:
    return tuple(known[name] for name in names)


def _by_name(*nests: Sequence[Axis]) -> dict[str, Axis]:
    return {axis.name: axis for axes in nests for axis in axes}


def next_power_of_two(number: int) -> int:
    """The smallest power of two that is not below ``number``; 1 for what is below 1."""
    return 1 << max(0, number - 1).bit_length()
