"""Other tiles that a kernel may be quicker with: what the rule chose, moved by a few steps.

A candidate is a kernel that differs in its schedule alone. Few are offered, those first that gained most often, since
each costs a compilation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from litz_codegen_triton.emit.coordinates import TileIndices
from litz_codegen_triton.emit.descriptor import descriptors
from litz_codegen_triton.emit.fused_attention import FusedAttention
from litz_codegen_triton.emit.tiles import InnerLoop, TileDim, Tiling, next_power_of_two, tiling
from litz_codegen_triton.schedule.foreach import sms_of_subkernel
from litz_codegen_triton.schedule.kernel import schedule_kernel
from litz_codegen_triton.schedule.kernel_traits import sorts
from litz_codegen_triton.schedule.matmul import LEAST_SIDE, STAGE_BYTES, STAGES
from litz_codegen_triton.schedule.tile_loops import LARGEST_TILE
from litz_ir.dtypes import f32
from litz_ir.plan import Kernel, LookbackScan, TileRequest, with_schedules
from litz_ir.symbols import SymbolTable, cdiv
from litz_ir.target import Capabilities

MAX_CANDIDATES = 6
"""The most candidates of a kernel, itself among them."""

MAX_WARPS, THREADS = 32, 32
"""The warps of a program at most, and the threads of a warp."""

REGISTERS, ATTENTION_REGISTERS = 128, 192
"""What a thread has for the elements of all buffers together, and for the sums and left factors of a chain."""

SHARED_BYTES = 2 * STAGES * STAGE_BYTES
"""What the tiles of factors that are on their way may take in a trial, where the chip has as much."""

WHOLE_ROW = 20
"""More steps than any row has: the row at once."""


@dataclass(frozen=True, slots=True)
class TileMove:
    """Steps by a factor of two: of the tile's outer dimensions, of the piece of a row that it holds, and of warps;
    and ``stages`` more on their way. ``persistent``: as many programs as there are processors take the tiles of a
    product in turn, and read its factors by descriptors."""

    y: int = 0
    x: int = 0
    r: int = 0
    warps: int = 0
    stages: int = 0
    persistent: bool = False


MAP = (
    TileMove(x=-1),
    TileMove(x=1),
    TileMove(x=1, warps=1),
    TileMove(x=-1, warps=-1),
    TileMove(x=2),
    TileMove(x=-2),
)
SQUARE = (
    TileMove(warps=1),
    TileMove(y=-1),
    TileMove(x=-1),
    TileMove(-1, -1, warps=-2),
    TileMove(-1, -1, warps=-1),
    TileMove(1, 1, warps=2),
)
ROWS = (
    TileMove(warps=1),
    TileMove(warps=-1),
    TileMove(x=1),
    TileMove(r=-2),
    TileMove(x=1, warps=1),
    TileMove(r=-2, warps=-1),
)
SHORT_ROWS = (
    TileMove(warps=1),
    TileMove(warps=-1),
    TileMove(x=1),
    TileMove(x=-1),
    TileMove(x=1, warps=1),
    TileMove(x=-1, warps=-1),
)
CHUNKED_ROWS = (
    TileMove(r=WHOLE_ROW),
    TileMove(r=WHOLE_ROW, warps=1),
    TileMove(r=-1),
    TileMove(r=1),
    TileMove(warps=-1),
    TileMove(r=-1, warps=-1),
    TileMove(r=2),
    TileMove(warps=1),
)
COLUMNS = (
    TileMove(x=1, r=-1),
    TileMove(x=-1, r=1),
    TileMove(r=1),
    TileMove(warps=1),
    TileMove(warps=-1),
    TileMove(r=-1),
    TileMove(x=1),
)
MATMUL = (
    TileMove(stages=1),
    TileMove(x=1, persistent=True),
    TileMove(x=1),
    TileMove(r=-1, stages=1),
    TileMove(stages=1, persistent=True),
    TileMove(x=-1),
    TileMove(y=-1),
    TileMove(r=1),
    TileMove(warps=-1),
    TileMove(warps=1),
)
ROUNDED_MATMUL = (
    TileMove(1, 1, r=-1, warps=1),
    TileMove(1, 1, r=-1, warps=1, persistent=True),
    TileMove(x=1, warps=1),
    TileMove(stages=1),
    TileMove(1, 1, r=-1, warps=1, stages=1),
    TileMove(y=1, warps=1),
    *MATMUL,
)
FUSED_ATTENTION = (
    TileMove(r=1),
    TileMove(y=-1, warps=-1),
    TileMove(y=1, warps=1),
    TileMove(r=-1),
    TileMove(warps=1),
    TileMove(stages=-1),
    TileMove(stages=1),
    TileMove(y=-1),
    TileMove(r=1, stages=-1),
    TileMove(warps=-1),
)
HORIZONTAL_FUSION = (
    TileMove(x=-1),
    TileMove(x=1),
    TileMove(x=1, warps=1),
    TileMove(x=-1, warps=-1),
    TileMove(r=1),
    TileMove(r=-1),
    TileMove(warps=-1),
    TileMove(warps=1),
)
"""What is tried, in this order: for maps over one dimension and over two, for rows that stay in registers, one or
several to a program, for those that are read in pieces, for reductions of columns in pieces, for products of matrices,
those whose factors of f32 are rounded, which tensor cores multiply, for chains of them, and for packs."""


@dataclass(frozen=True, slots=True)
class _Tile:
    """The blocks of the outer dimensions, the largest of a phase's, the warps of a program, and the stages of a product
    of matrices, whose programs take ``turns``."""

    outer: tuple[int, ...]
    inner: int
    warps: int
    stages: int = 0
    turns: bool = False

    @property
    def points(self) -> int:
        """The points that are in registers at a time: of a product the results."""
        return math.prod(self.outer) * (1 if self.stages else self.inner)

    @property
    def each(self) -> int:
        """The points of a thread, rounded up."""
        return -(-self.points // (THREADS * self.warps))


def candidates(
    kernel: Kernel, capabilities: Capabilities, shared_bytes: int = SHARED_BYTES, *, described: bool = False
) -> tuple[Kernel, ...]:
    """A scheduled kernel as it is, and at most ``MOST - 1`` more with other tiles, for a device of which a program has
    so many bytes of shared memory, and which reads ``described`` memory by tiles. Raises ``CodegenError`` for a kernel
    that is not scheduled for a GPU."""
    if kernel.subkernels:
        return _foreach_candidates(kernel, capabilities, shared_bytes)
    if isinstance(kernel.schedule, LookbackScan):
        return (kernel,)  # as many threads as a window has words
    base = tiling(kernel)
    around = _Around(kernel, base, capabilities.sm_count, shared_bytes, described)
    found = {_shape(base): kernel}
    for tile in filter(around.is_sensible, around.moved()):
        other = schedule_kernel(replace(kernel, schedule=around.request(tile)), capabilities)
        found.setdefault(_shape(tiling(other)), other)
        if len(found) == MAX_CANDIDATES:
            break
    return tuple(found.values())


def _foreach_candidates(kernel: Kernel, capabilities: Capabilities, shared_bytes: int) -> tuple[Kernel, ...]:
    """A foreach kernel as it is, and others whose subkernels have other tiles: those of the subkernel that has most
    points are moved, and alike all others that stay sensible; the rule cuts the rest for as many warps."""
    own = sms_of_subkernel(kernel, capabilities)
    bases = _tilings(kernel)
    arounds = [
        _Around(part.kernel, base, own, shared_bytes, False)
        for part, base in zip(kernel.subkernels, bases, strict=True)
    ]
    leading = max(
        range(len(bases)), key=lambda k: len(kernel.subkernels[k].invocations) * arounds[k].extent()
    )
    found = {tuple(map(_shape, bases)): kernel}
    for move in HORIZONTAL_FUSION:
        tiles = [around.at(move) for around in arounds]
        sensible = [around.is_sensible(tile) for around, tile in zip(arounds, tiles, strict=True)]
        if not sensible[leading] or tiles[leading] == arounds[leading].start:
            continue
        requests = [
            around.request(tile) if fits else TileRequest()
            for around, tile, fits in zip(arounds, tiles, sensible, strict=True)
        ]
        other = schedule_kernel(with_schedules(kernel, (TileRequest(), *requests)), capabilities)
        found.setdefault(tuple(map(_shape, _tilings(other))), other)
        if len(found) == MAX_CANDIDATES:
            break
    return tuple(found.values())


def _tilings(kernel: Kernel) -> tuple[Tiling, ...]:
    return tuple(tiling(part.kernel) for part in kernel.subkernels)


def describe_tiling(kernel: Kernel) -> str:
    """How a scheduled kernel is cut into tiles; of a pack how each kind of its loops is, and how many there are."""
    if not kernel.subkernels:
        return describe_tile(tiling(kernel))
    counts = [len(part.invocations) for part in kernel.subkernels]
    return " beside ".join(
        f"{count} of {describe_tile(tiles)}" for count, tiles in zip(counts, _tilings(kernel), strict=True)
    )


def describe_tile(tiles: Tiling) -> str:
    """Tiles in words: ``x 1024, 4 warps`` or ``x 2, r 4096 in pieces, 8 warps``."""
    parts = [f"{dim.letter} {dim.block}" for dim in tiles.outer if dim.block > 1]
    parts += dict.fromkeys(
        f"r {inner.block}{'' if inner.persistent else ' in pieces'}" for inner in _inners(tiles)
    )
    parts.append(f"{tiles.warps} warp{'s' if tiles.warps > 1 else ''}")
    parts += [f"shared by {tiles.cluster_size}"] if tiles.cluster_size > 1 else []
    parts += ["one going on from another"] if tiles.lookback else []
    parts += [f"{tiles.max_grid_size} programs"] if tiles.max_grid_size else []
    parts += ["by descriptors"] if tiles.descriptors else []
    return ", ".join([*parts, f"{tiles.stages} stages"] if tiles.uses_dot or tiles.stages > 1 else parts)


def _inners(tiles: Tiling) -> Iterator[InnerLoop]:
    return (inner for inner in tiles.inner if inner is not None)


def _shape(tiles: Tiling) -> tuple[object, ...]:
    """What makes two tilings differ."""
    inner = tuple((each.block, each.persistent) for each in _inners(tiles))
    turns = tiles.max_grid_size, tiles.descriptors
    return tuple(dim.block for dim in tiles.outer), inner, tiles.warps, tiles.stages, turns


class _Around:
    """The tiles near those that the rule chose for a kernel."""

    def __init__(
        self, kernel: Kernel, base: Tiling, sm_count: int, shared_bytes: int, described: bool
    ) -> None:
        self.base = base
        self.sm_count = sm_count
        self.shared_bytes = shared_bytes
        found = base.contraction
        # Where no tensor cores multiply, a thread has no registers to spare for tiles that it meets in turn.
        tensor_cores = found is not None and (found.dtype != f32 or found.multiply == "mul_tf32")
        self.described = described and tensor_cores and all(descriptors(TileIndices(kernel, base)))
        self.parameters = len(kernel.parameters)
        self.sorts = sorts(kernel)
        self.stored = max(
            (each.dtype.itemsize for each in kernel.parameters if each.access != "in"), default=0
        )
        self.known = SymbolTable(kernel.symbols)
        # The last two of three outer dimensions may have more than a point of a tile.
        self.dims: tuple[TileDim, ...] = base.outer[-2:]
        self.inners = tuple(_inners(base))
        self.start = _Tile(
            tuple(dim.block for dim in self.dims),
            max((inner.block for inner in self.inners), default=1),
            base.warps,
            base.stages if base.uses_dot else 0,
        )
        self.least = LEAST_SIDE if base.uses_dot else 1
        self.ends = [max(self.least, next_power_of_two(self.known.hint(dim.size))) for dim in self.dims]
        rows = (next_power_of_two(self.known.hint(inner.points_per_cta)) for inner in self.inners)
        self.length = max(self.least, max(rows, default=1))

    def moved(self) -> Iterator[_Tile]:
        """Those that the kernel's moves lead to."""
        return map(self.at, self._moves())

    def at(self, move: TileMove) -> _Tile:
        """That to which a move leads, within the kernel's extents."""
        steps = (move.y, move.x)[2 - len(self.ends) :]
        outer = zip(self.start.outer, steps, self.ends, strict=True)
        return _Tile(
            tuple(_step(block, by, self.least, end) for block, by, end in outer),
            _step(self.start.inner, move.r, self.least, self.length),
            _step(self.start.warps, move.warps, 1, MAX_WARPS),
            self.start.stages + move.stages,
            move.persistent,
        )

    def extent(self) -> int:
        """About how many points there are."""
        return math.prod(self.ends) * self.length

    def _moves(self) -> Sequence[TileMove]:
        if self.base.attention is not None:
            return FUSED_ATTENTION
        if self.base.contraction is not None:
            return ROUNDED_MATMUL if self.base.contraction.multiply == "mul_tf32" else MATMUL
        several = any(dim.block > 1 for dim in self.base.outer)
        if not self.inners:
            return MAP if len(self.base.outer) < 2 else SQUARE
        if any(inner.persistent for inner in self.inners):
            return SHORT_ROWS if several or self.sorts else ROWS
        return COLUMNS if several else CHUNKED_ROWS

    def is_sensible(self, tile: _Tile) -> bool:
        """True for a tile that every thread has a point of, that fits the registers and shared memory, and leaves no
        processor idle that the rule keeps busy."""
        found = self.base.contraction
        if self.base.attention is not None:
            return self._holds(tile, self.base.attention) and self._busy(tile)
        if found is None:
            most = max(self.start.each, REGISTERS // max(1, self.parameters))
        else:
            most = REGISTERS
            held = sum(tile.outer) * tile.inner * found.dtype.itemsize * tile.stages
            if tile.turns:
                # The factors of the next tile come while the results of this one change places.
                held += tile.points * self.stored
            if held > self.shared_bytes or (tile.turns and not self._pays_in_turns(tile)):
                return False
        if tile.points > LARGEST_TILE or tile.each > most:
            return False
        if tile.warps > 1 and tile.points < THREADS * tile.warps:
            return False
        return self._busy(tile)

    def _holds(self, tile: _Tile, found: FusedAttention) -> bool:
        """True where registers hold the sums and left factors of a chain's tile, and shared memory what is multiplied,
        with a stage at least."""
        y, x = tile.outer
        each = y * (x * len(found.statements) + tile.inner) // (THREADS * tile.warps)
        lines = y + tile.inner * tile.stages
        held = lines * max(found.head_dim, x) * 2 * found.dtype.itemsize
        return (
            each <= ATTENTION_REGISTERS and held <= min(SHARED_BYTES, self.shared_bytes) and tile.stages > 0
        )

    def _pays_in_turns(self, tile: _Tile) -> bool:
        """True where both factors can be described and some program has more than one tile."""
        return self.described and self._programs(tile) > self.sm_count

    def _busy(self, tile: _Tile) -> bool:
        """True where no processor is idle that the rule keeps busy."""
        return self._programs(tile) >= min(self.sm_count, self._programs(self.start))

    def _programs(self, tile: _Tile) -> int:
        pairs = zip(self.dims, tile.outer, strict=True)
        return math.prod(self.known.hint(cdiv(dim.size, block)) for dim, block in pairs)

    def request(self, tile: _Tile) -> TileRequest:
        """The request for a tile."""
        dims = zip(self.dims, tile.outer, strict=True)
        blocks = {dim.axes[-1].name: block for dim, block in dims if dim.axes}
        blocks |= {inner.axes[-1].name: tile.inner for inner in self.inners}
        return TileRequest(
            cluster=self.base.cluster_size, blocks=tuple(blocks.items()), warps=tile.warps, stages=tile.stages,
            grid=self.sm_count if tile.turns else 0, descriptors=tile.turns,
        )  # fmt: skip


def _step(number: int, steps: int, least: int, most: int) -> int:
    """A power of two, moved by so many steps between two others."""
    return min(max(number << steps if steps >= 0 else number >> -steps, least), most)
