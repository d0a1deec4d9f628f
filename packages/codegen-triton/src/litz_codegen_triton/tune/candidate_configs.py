"""Candidate configs for autotuning: the chosen tiles of a kernel, moved by a few powers of two.

A candidate differs from the kernel in its schedule alone. Each costs a compilation, so there are few.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from litz_codegen_triton.emit.indexing.coordinates import TileIndices
from litz_codegen_triton.emit.loops.contraction import Contraction
from litz_codegen_triton.emit.loops.dot_kernels import scheduled_roles
from litz_codegen_triton.emit.loops.fused_attention import FusedAttention
from litz_codegen_triton.emit.loops.tiles import InnerLoop, TileDim, Tiling, next_power_of_two, tiling
from litz_codegen_triton.emit.matmul.descriptor import descriptors
from litz_codegen_triton.schedule.foreach import sms_of_subkernel
from litz_codegen_triton.schedule.kernel import schedule_kernel
from litz_codegen_triton.schedule.kernel_traits import sorts
from litz_codegen_triton.schedule.matmul import MIN_BLOCK
from litz_codegen_triton.tables import Chip, chip_of
from litz_codegen_triton.tune.tile_moves import (
    CHUNKED_ROWS,
    COLUMNS,
    FUSED_ATTENTION,
    HORIZONTAL_FUSION,
    MAP,
    MATMUL,
    ROUNDED_MATMUL,
    ROWS,
    SHORT_ROWS,
    SQUARE,
    TileMove,
)
from litz_ir.dtypes import f32
from litz_ir.plan import Kernel, LookbackScan, TileRequest, with_schedules
from litz_ir.symbols import SymbolTable, cdiv
from litz_ir.target import Capabilities

MAX_CANDIDATES = 6
"""Most candidates of a kernel, the kernel itself included."""


@dataclass(frozen=True, slots=True)
class _Tile:
    """The numbers of a schedule that a move changes."""

    outer: tuple[int, ...]
    """Block sizes of the outer dimensions."""

    inner: int
    """Largest block size of a phase's own axes; 1 where no phase has axes."""

    warps: int
    """Warps of a thread block."""

    stages: int = 0
    """Software pipelining stages of a matmul or attention; 0 for other kernels."""

    persistent: bool = False
    """True for a persistent matmul."""

    @property
    def points(self) -> int:
        """Points in registers at a time; for a matmul or attention, the accumulated results."""
        return math.prod(self.outer) * (1 if self.stages else self.inner)


def candidates(kernel: Kernel, capabilities: Capabilities) -> tuple[Kernel, ...]:
    """Return a scheduled kernel and at most ``MAX_CANDIDATES - 1`` variants of it with other tiles.

    Raises ``CodegenError`` for a kernel that is not scheduled for a GPU.
    """
    if kernel.subkernels:
        return _foreach_candidates(kernel, capabilities)
    if isinstance(kernel.schedule, LookbackScan):
        return (kernel,)  # it needs one thread for each word of a look-back window
    base = tiling(kernel)
    search = _SearchSpace(kernel, base, chip_of(capabilities))
    found = {_shape(base): kernel}
    for tile in filter(search.is_sensible, search.moved()):
        other = schedule_kernel(replace(kernel, schedule=search.request(tile)), capabilities)
        found.setdefault(_shape(tiling(other)), other)
        if len(found) == MAX_CANDIDATES:
            break
    return tuple(found.values())


def _foreach_candidates(kernel: Kernel, capabilities: Capabilities) -> tuple[Kernel, ...]:
    """Return a foreach kernel and variants of it whose subkernels have other tiles.

    A move has to be sensible for the subkernel with most points. It moves the others for which it is sensible too; the
    rest are scheduled by default for the same number of warps.
    """
    chip = chip_of(capabilities)
    chip = replace(chip, model=replace(chip.model, sm_count=sms_of_subkernel(kernel, capabilities)))
    bases = _tilings(kernel)
    searches = [
        _SearchSpace(subkernel.kernel, base, chip)
        for subkernel, base in zip(kernel.subkernels, bases, strict=True)
    ]
    largest = max(
        range(len(bases)), key=lambda k: len(kernel.subkernels[k].invocations) * searches[k].extent()
    )
    found = {tuple(map(_shape, bases)): kernel}
    for move in HORIZONTAL_FUSION:
        tiles = [search.at(move) for search in searches]
        sensible = [search.is_sensible(tile) for search, tile in zip(searches, tiles, strict=True)]
        if not sensible[largest] or tiles[largest] == searches[largest].start:
            continue
        requests = [
            search.request(tile) if fits else TileRequest()
            for search, tile, fits in zip(searches, tiles, sensible, strict=True)
        ]
        other = schedule_kernel(with_schedules(kernel, (TileRequest(), *requests)), capabilities)
        found.setdefault(tuple(map(_shape, _tilings(other))), other)
        if len(found) == MAX_CANDIDATES:
            break
    return tuple(found.values())


def _tilings(kernel: Kernel) -> tuple[Tiling, ...]:
    return tuple(tiling(subkernel.kernel) for subkernel in kernel.subkernels)


def describe_tiling(kernel: Kernel) -> str:
    """Describe the tiles of a scheduled kernel; for a foreach kernel, the invocations and tiles of each subkernel."""
    if not kernel.subkernels:
        return describe_tile(tiling(kernel))
    counts = [len(subkernel.invocations) for subkernel in kernel.subkernels]
    return "; ".join(
        f"{count} of {describe_tile(tiles)}" for count, tiles in zip(counts, _tilings(kernel), strict=True)
    )


def describe_tile(tiles: Tiling) -> str:
    """Describe tiles, as in ``x 1024, 4 warps`` or ``x 2, r 4096 looped, 8 warps``."""
    words = [f"{dim.letter} {dim.block}" for dim in tiles.outer if dim.block > 1]
    words += dict.fromkeys(
        f"r {inner.block}{'' if inner.persistent else ' looped'}" for inner in _inners(tiles)
    )
    words.append(f"{tiles.warps} warp{'s' if tiles.warps > 1 else ''}")
    cluster = max(tiles.cluster_size, tiles.row_cluster)
    words += [f"clusters of {cluster}"] if cluster > 1 else []
    words += ["look-back"] if tiles.lookback else []
    words += [f"grid of {tiles.max_grid_size}"] if tiles.max_grid_size else []
    words += ["tensor descriptors"] if tiles.descriptors or tiles.summed_descriptors else []
    return ", ".join([*words, f"{tiles.stages} stages"] if tiles.uses_dot or tiles.stages > 1 else words)


def _inners(tiles: Tiling) -> Iterator[InnerLoop]:
    return (inner for inner in tiles.inner if inner is not None)


def _shape(tiles: Tiling) -> tuple[object, ...]:
    """Return a key that is equal for equal tilings."""
    inner = tuple((each.block, each.persistent) for each in _inners(tiles))
    persistence = tiles.max_grid_size, tiles.descriptors
    return tuple(dim.block for dim in tiles.outer), inner, tiles.warps, tiles.stages, persistence


class _SearchSpace:
    """The tiles near the chosen tiling ``base`` of a kernel."""

    def __init__(self, kernel: Kernel, base: Tiling, chip: Chip) -> None:
        self.base = base
        self.model = model = chip.model
        self.limits = chip.tiles.tuning
        self.largest_tile = chip.tiles.loops.largest_tile
        self.dot = scheduled_roles(kernel)
        found = self.dot if isinstance(self.dot, Contraction) else None
        # Without tensor cores, a thread has no free registers for the loop over tiles of a persistent matmul.
        tensor_cores = found is not None and (found.dtype != f32 or found.multiply == "mul_tf32")
        self.has_descriptors = (
            model.tensor_descriptors and tensor_cores and all(descriptors(TileIndices(kernel, base, found)))
        )
        self.parameters = len(kernel.parameters)
        self.sorts = sorts(kernel)
        self.stored_itemsize = max(
            (each.dtype.itemsize for each in kernel.parameters if each.access != "in"), default=0
        )
        self.known = SymbolTable(kernel.symbols)
        # Of three outer dimensions, a tile has more than one point along the last two alone.
        self.dims: tuple[TileDim, ...] = base.outer[-2:]
        self.inners = tuple(_inners(base))
        self.start = _Tile(
            tuple(dim.block for dim in self.dims),
            max((inner.block for inner in self.inners), default=1),
            base.warps,
            base.stages if base.uses_dot else 0,
        )
        self.least = MIN_BLOCK if base.uses_dot else 1
        self.ends = [max(self.least, next_power_of_two(self.known.hint(dim.size))) for dim in self.dims]
        rows = (next_power_of_two(self.known.hint(inner.points_per_cta)) for inner in self.inners)
        self.length = max(self.least, max(rows, default=1))

    def moved(self) -> Iterator[_Tile]:
        """Yield the tile after each move for this form of kernel."""
        return map(self.at, self._moves())

    def at(self, move: TileMove) -> _Tile:
        """Return the tile after a move, within the kernel's extents."""
        steps = (move.y, move.x)[2 - len(self.ends) :]
        outer = zip(self.start.outer, steps, self.ends, strict=True)
        return _Tile(
            tuple(_step(block, by, self.least, end) for block, by, end in outer),
            _step(self.start.inner, move.r, self.least, self.length),
            _step(self.start.warps, move.warps, 1, self.model.max_warps),
            self.start.stages + move.stages,
            move.persistent,
        )

    def extent(self) -> int:
        """Return the hinted number of points, each extent rounded up to a power of two."""
        return math.prod(self.ends) * self.length

    def _moves(self) -> Sequence[TileMove]:
        if isinstance(self.dot, FusedAttention):
            return FUSED_ATTENTION
        if self.dot is not None:
            return ROUNDED_MATMUL if self.dot.multiply == "mul_tf32" else MATMUL
        several = any(dim.block > 1 for dim in self.base.outer)
        if not self.inners:
            return MAP if len(self.base.outer) < 2 else SQUARE
        if any(inner.persistent for inner in self.inners):
            return SHORT_ROWS if several or self.sorts else ROWS
        return COLUMNS if several else CHUNKED_ROWS

    def is_sensible(self, tile: _Tile) -> bool:
        """True for a tile that gives every thread a point, fits registers and shared memory, and occupies as many SMs
        as the chosen tile."""
        found = self.dot
        if self.base.row_cluster > 1 and (tile.outer, tile.inner) != (self.start.outer, self.start.inner):
            return False
        if isinstance(found, FusedAttention):
            return self._attention_fits(tile, found) and self._occupies_sms(tile)
        if found is None:
            limit = max(self._points_per_thread(self.start), self.limits.registers // max(1, self.parameters))
        else:
            limit = self.limits.registers
            shared_bytes = sum(tile.outer) * tile.inner * found.dtype.itemsize * tile.stages
            if tile.persistent:
                # Operands of the next tile arrive while the results of this one pass through shared memory.
                shared_bytes += tile.points * self.stored_itemsize
            if shared_bytes > self.model.shared_bytes or (
                tile.persistent and not self._persistence_pays(tile)
            ):
                return False
        if tile.points > self.largest_tile or self._points_per_thread(tile) > limit:
            return False
        if tile.warps > 1 and tile.points < self.model.warp_size * tile.warps:
            return False
        return self._occupies_sms(tile)

    def _points_per_thread(self, tile: _Tile) -> int:
        """Return the points of a thread, rounded up."""
        return -(-tile.points // (self.model.warp_size * tile.warps))

    def _attention_fits(self, tile: _Tile, found: FusedAttention) -> bool:
        """True where registers hold the accumulators and P, and shared memory holds the operands of at least one
        pipelining stage."""
        y, x = tile.outer
        elements = y * (x * len(found.statements) + tile.inner) // (self.model.warp_size * tile.warps)
        rows = y + tile.inner * tile.stages
        shared_bytes = rows * max(found.head_dim, x) * 2 * found.dtype.itemsize
        return (
            elements <= self.limits.attention_registers
            and shared_bytes <= min(self.limits.attention_shared_bytes, self.model.shared_bytes)
            and tile.stages > 0
        )

    def _persistence_pays(self, tile: _Tile) -> bool:
        """True where both operands have tensor descriptors and there are more tiles than SMs."""
        return self.has_descriptors and self._tile_count(tile) > self.model.sm_count

    def _occupies_sms(self, tile: _Tile) -> bool:
        """True where the tile leaves no SM idle that the chosen tile occupies."""
        return self._tile_count(tile) >= min(self.model.sm_count, self._tile_count(self.start))

    def _tile_count(self, tile: _Tile) -> int:
        pairs = zip(self.dims, tile.outer, strict=True)
        return math.prod(self.known.hint(cdiv(dim.size, block)) for dim, block in pairs)

    def request(self, tile: _Tile) -> TileRequest:
        """Return the tile request that asks for a tile."""
        dims = zip(self.dims, tile.outer, strict=True)
        blocks = {dim.axes[-1].name: block for dim, block in dims if dim.axes}
        blocks |= {inner.axes[-1].name: tile.inner for inner in self.inners}
        return TileRequest(
            cluster=self.base.cluster_size, row_cluster=self.base.row_cluster,
            blocks=tuple(blocks.items()), warps=tile.warps, stages=tile.stages,
            grid=self.model.sm_count if tile.persistent else 0, descriptors=tile.persistent,
        )  # fmt: skip


def _step(number: int, steps: int, low: int, high: int) -> int:
    """Double a power of two ``steps`` times, or halve it, and clamp it to ``low`` and ``high``."""
    return min(max(number << steps if steps >= 0 else number >> -steps, low), high)
