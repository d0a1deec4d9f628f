"""Other tiles that a kernel may be quicker with: what the rule chose, moved by a few steps.

A candidate is a kernel that differs in its schedule alone. Few are offered, those first that gained most often, since
each costs a compilation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from litz_codegen_triton.emit.blocks import LARGEST_TILE, tiling
from litz_codegen_triton.emit.chain import Chain
from litz_codegen_triton.emit.product_tiles import LEAST_SIDE, STAGE_BYTES, STAGES
from litz_codegen_triton.emit.tiles import Dim, Inner, Tiling, next_power_of_two
from litz_ir.plan.kernel import Kernel
from litz_ir.plan.schedule import Schedule
from litz_ir.symbols.table import SymbolTable
from litz_ir.symbols.term import cdiv

MOST = 6
"""The most candidates of a kernel, itself among them."""

MOST_WARPS, THREADS = 32, 32
"""The warps of a program at most, and the threads of a warp."""

REGISTERS, CHAIN_REGISTERS = 128, 192
"""What a thread has for the elements of all buffers together, and for the sums and left factors of a chain."""

SHARED_BYTES = 2 * STAGES * STAGE_BYTES
"""What the tiles of factors that are on their way may take in a trial: not all chips hold as much."""

WHOLE = 20
"""More steps than any row has: the row at once."""


@dataclass(frozen=True, slots=True)
class Move:
    """Steps by a factor of two: of the tile's outer dimensions, of the piece of a row that it holds, and of warps; and
    ``stages`` more on their way."""

    y: int = 0
    x: int = 0
    r: int = 0
    warps: int = 0
    stages: int = 0


MAP = (Move(x=-1), Move(x=1), Move(x=1, warps=1), Move(x=-1, warps=-1), Move(x=2), Move(x=-2))
SQUARE = (
    Move(warps=1), Move(y=-1), Move(x=-1), Move(-1, -1, warps=-2), Move(-1, -1, warps=-1), Move(1, 1, warps=2),
)  # fmt: skip
ROWS = (
    Move(warps=1), Move(warps=-1), Move(x=1), Move(r=-2), Move(x=1, warps=1), Move(r=-2, warps=-1),
)  # fmt: skip
SHORT_ROWS = (
    Move(warps=1), Move(warps=-1), Move(x=1), Move(x=-1), Move(x=1, warps=1), Move(x=-1, warps=-1),
)  # fmt: skip
PIECES = (
    Move(r=WHOLE), Move(r=WHOLE, warps=1), Move(r=-1), Move(r=1), Move(warps=-1), Move(r=-1, warps=-1), Move(r=2),
    Move(warps=1),
)  # fmt: skip
COLUMNS = (
    Move(x=1, r=-1), Move(x=-1, r=1), Move(r=1), Move(warps=1), Move(warps=-1), Move(r=-1), Move(x=1),
)  # fmt: skip
PRODUCT = (
    Move(stages=1), Move(r=-1, stages=1), Move(x=1), Move(x=-1), Move(y=-1), Move(r=1), Move(warps=-1), Move(warps=1),
)  # fmt: skip
CHAIN = (
    Move(r=1), Move(y=-1, warps=-1), Move(y=1, warps=1), Move(r=-1), Move(warps=1), Move(stages=-1), Move(stages=1),
    Move(y=-1), Move(r=1, stages=-1), Move(warps=-1),
)  # fmt: skip
"""What is tried, in this order: for maps over one dimension and over two, for rows that stay in registers, one or
several to a program, for those that are read in pieces, for reductions of columns in pieces, for products of matrices,
and for chains of them."""


@dataclass(frozen=True, slots=True)
class _Tile:
    """The blocks of the outer dimensions, the largest of a phase's, the warps of a program, and the stages of a product
    of matrices."""

    outer: tuple[int, ...]
    inner: int
    warps: int
    stages: int = 0

    @property
    def points(self) -> int:
        """The points that are in registers at a time: of a product the results."""
        return math.prod(self.outer) * (1 if self.stages else self.inner)

    @property
    def each(self) -> int:
        """The points of a thread, rounded up."""
        return -(-self.points // (THREADS * self.warps))


def candidates(kernel: Kernel, processors: int = 132) -> tuple[Kernel, ...]:
    """The kernel as it is, and at most ``MOST - 1`` more whose schedules name other tiles for a device with so many
    processors. Raises ``CodegenError`` like :func:`litz_codegen_triton.emit.blocks.tiling`."""
    base = tiling(kernel, processors)
    around = _Around(kernel, base, processors)
    found = {_shape(base): kernel}
    for tile in filter(around.is_sensible, around.moved()):
        other = replace(kernel, schedule=around.schedule(tile))
        found.setdefault(_shape(tiling(other, processors)), other)
        if len(found) == MOST:
            break
    return tuple(found.values())


def described(tiles: Tiling) -> str:
    """Tiles in words: ``x 1024, 4 warps`` or ``x 2, r 4096 in pieces, 8 warps``."""
    parts = [f"{dim.letter} {dim.block}" for dim in tiles.outer if dim.block > 1]
    parts += dict.fromkeys(
        f"r {inner.block}{'' if inner.persistent else ' in pieces'}" for inner in _inners(tiles)
    )
    parts.append(f"{tiles.warps} warp{'s' if tiles.warps > 1 else ''}")
    parts += [f"shared by {tiles.shared}"] if tiles.shared > 1 else []
    return ", ".join([*parts, f"{tiles.stages} stages"] if tiles.multiplied or tiles.stages > 1 else parts)


def _inners(tiles: Tiling) -> Iterator[Inner]:
    return (inner for inner in tiles.inner if inner is not None)


def _shape(tiles: Tiling) -> tuple[object, ...]:
    """What makes two tilings differ."""
    inner = tuple((each.block, each.persistent) for each in _inners(tiles))
    return tuple(dim.block for dim in tiles.outer), inner, tiles.warps, tiles.stages


class _Around:
    """The tiles near those that the rule chose for a kernel."""

    def __init__(self, kernel: Kernel, base: Tiling, processors: int) -> None:
        self.base = base
        self.processors = processors
        self.parameters = len(kernel.parameters)
        self.known = SymbolTable(kernel.symbols)
        # The last two of three outer dimensions may have more than a point of a tile.
        self.dims: tuple[Dim, ...] = base.outer[-2:]
        self.inners = tuple(_inners(base))
        self.start = _Tile(
            tuple(dim.block for dim in self.dims),
            max((inner.block for inner in self.inners), default=1),
            base.warps,
            base.stages if base.multiplied else 0,
        )

    def moved(self) -> Iterator[_Tile]:
        """Those that the moves lead to, within the kernel's extents."""
        least = LEAST_SIDE if self.base.multiplied else 1
        ends = [max(least, next_power_of_two(self.known.hint(dim.size))) for dim in self.dims]
        rows = (next_power_of_two(self.known.hint(inner.piece)) for inner in self.inners)
        length = max(rows, default=1)
        for move in self._moves():
            steps = (move.y, move.x)[2 - len(ends) :]
            outer = zip(self.start.outer, steps, ends, strict=True)
            yield _Tile(
                tuple(_step(block, by, least, end) for block, by, end in outer),
                _step(self.start.inner, move.r, least, max(least, length)),
                _step(self.start.warps, move.warps, 1, MOST_WARPS),
                self.start.stages + move.stages,
            )

    def _moves(self) -> Sequence[Move]:
        if self.base.chain is not None:
            return CHAIN
        if self.base.contraction is not None:
            return PRODUCT
        several = any(dim.block > 1 for dim in self.base.outer)
        if not self.inners:
            return MAP if len(self.base.outer) < 2 else SQUARE
        if any(inner.persistent for inner in self.inners):
            return SHORT_ROWS if several else ROWS
        return COLUMNS if several else PIECES

    def is_sensible(self, tile: _Tile) -> bool:
        """True for a tile that every thread has a point of, that fits the registers and shared memory, and leaves no
        processor idle that the rule keeps busy."""
        found = self.base.contraction
        if self.base.chain is not None:
            return self._holds(tile, self.base.chain) and self._busy(tile)
        if found is None:
            most = max(self.start.each, REGISTERS // max(1, self.parameters))
        else:
            most = REGISTERS
            if sum(tile.outer) * tile.inner * found.dtype.itemsize * tile.stages > SHARED_BYTES:
                return False
        if tile.points > LARGEST_TILE or tile.each > most:
            return False
        if tile.warps > 1 and tile.points < THREADS * tile.warps:
            return False
        return self._busy(tile)

    def _holds(self, tile: _Tile, found: Chain) -> bool:
        """True where registers hold the sums and left factors of a chain's tile, and shared memory what is multiplied,
        with a stage at least."""
        y, x = tile.outer
        each = y * (x * len(found.statements) + tile.inner) // (THREADS * tile.warps)
        lines = y + tile.inner * tile.stages
        held = lines * max(found.depth, x) * 2 * found.dtype.itemsize
        return each <= CHAIN_REGISTERS and held <= SHARED_BYTES and tile.stages > 0

    def _busy(self, tile: _Tile) -> bool:
        """True where no processor is idle that the rule keeps busy."""
        return self._programs(tile) >= min(self.processors, self._programs(self.start))

    def _programs(self, tile: _Tile) -> int:
        pairs = zip(self.dims, tile.outer, strict=True)
        return math.prod(self.known.hint(cdiv(dim.size, block)) for dim, block in pairs)

    def schedule(self, tile: _Tile) -> Schedule:
        """The schedule that asks for a tile."""
        dims = zip(self.dims, tile.outer, strict=True)
        blocks = {dim.axes[-1].name: block for dim, block in dims if dim.axes}
        blocks |= {inner.axes[-1].name: tile.inner for inner in self.inners}
        return Schedule(
            blocks=tuple(blocks.items()), warps=tile.warps, stages=tile.stages, shared=self.base.shared
        )


def _step(number: int, steps: int, least: int, most: int) -> int:
    """A power of two, moved by so many steps between two others."""
    return min(max(number << steps if steps >= 0 else number >> -steps, least), most)
