"""The schedule of loops over tiles: tile sizes, warps and stages of maps, reductions, scans and sorts.

The request decides where it names blocks. Otherwise the rule is threads in flight: each moves 16 bytes by one load,
and there are as many as a processor holds, which hides more of the memory's delay than several loads a thread do. Rows
stay in registers while they fit, and no tile is so large that SMs are left without one. The figures were
measured on an H200, over programs of a quarter of a gigabyte and more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from litz_codegen_triton.emit.statements import accumulates, can_flatten, targets_of, values_of
from litz_codegen_triton.emit.tiles import next_power_of_two, tiling
from litz_codegen_triton.schedule.register_pressure import dtype_words, index_words, point_words
from litz_codegen_triton.schedule.request import named_block, names
from litz_ir.errors import CodegenError
from litz_ir.loops import SORT, Axis, NamedCombiner
from litz_ir.plan import Accumulate, InnerTile, Kernel, Phase, ScanStore, Tile, TileLoops, TileRequest
from litz_ir.scalar import OPS, Op, indirects_in, loads, nested_reductions, walk
from litz_ir.symbols import Size, SymbolTable, coefficient, free_symbols, product

LOAD_BYTES = 16
"""What one thread moves by one instruction, at most."""

MAP_THREADS = 256
"""Threads of a program of a map."""

HEAVY = 16
"""The cost of a point, in adds, from which half as many threads of a map have twice as many points each: what one point
waits for, another computes meanwhile."""

ROW_ELEMENTS = 8
"""Elements of a row that a thread holds in registers, while ``ROW_WARPS`` are enough for that; otherwise, and where a
program has several short rows, ``TILE_ELEMENTS``. ``PAIRED_ELEMENTS`` where each comes with its index, since such pairs
are dear to combine across threads; ``LOOPED_ELEMENTS`` where the row is read piece by piece, by ``WIDE_SCAN_WARPS`` at
most where a scan takes more than a register for each value."""

TILE_ELEMENTS, PAIRED_ELEMENTS, LOOPED_ELEMENTS = 16, 32, 4
ROW_WARPS = WIDE_SCAN_WARPS = 16

SQUARE_TILE, SQUARE_ELEMENTS = 64, 32
"""The sides of a square tile, and how many of its elements a thread has."""

POINT_REGISTERS, MOST_EACH_WARPS = 192, 8
"""What of a thread's 255 registers the values of its points may take, and the warps up to which a thread can have that
many: where it would take more, a map's threads have fewer points each, and others' tiles more threads."""

GATHERS = 4
"""Loads of 16 bytes for each thread of a map that looks up where to read: it does that once for all of them."""

PERSISTENT_LIMIT = 16384
"""The longest row that stays in registers, in elements."""

LOOPED_ROW, REREAD_ROW = 4096, 8192
"""The elements of a tile that moves along a row. A row that later phases read again should still be in the second-level
cache then: the larger tile lets a processor work on one row at a time."""

COLUMN_TILE = 4096
"""The elements of a tile that moves down several columns. Where these are combined into more than ``LIGHT_STATES``
values each, a quarter of that leaves registers for them."""

SUMMED_TILE = 1024
"""The elements of a tile of which each sums up something for itself: registers hold what every sum reads."""

LIGHT_STATES = 3
_STATES = {"welford": 3, "online_softmax": 2, "softmax_sum": 3, "argmin": 2, "argmax": 2}

STAGES, STAGED_BYTES = 3, 48 << 10
"""The tiles that are on their way at a time, and what they may take of shared memory at the most, in loops down columns
that programs share. Rows, and columns that one program has, lose by it."""

SORTED_TILE, SORTED_ELEMENTS = 1024, 8
"""The keys of a program that sorts, unless a row has more, and those of a thread."""

SECTOR = 32
"""The bytes that memory brings at the least: a read of fewer brings what nobody asked for."""

LARGEST_TILE = 32768
_LEAST_TILE = 128
_WARP = 32
_MOST_WARPS = 32


def sorts(kernel: Kernel) -> bool:
    """True for a kernel that sorts rows, which then have to stay in registers."""
    statements = (each for phase in kernel.phases for each in phase.statements)
    return any(isinstance(each, ScanStore) and each.combiner == SORT for each in statements)


def schedule_tile_loops(kernel: Kernel, request: TileRequest, sm_count: int) -> TileLoops:
    """The schedule of a kernel that multiplies no tiles, on so many SMs. Raises ``CodegenError`` when a request names
    more outer axes than a tile has dimensions, or more programs of a cluster than have points."""
    chooser = _Chooser(kernel, request, sm_count)
    schedule = chooser.requested() if request.blocks else chooser.chosen()
    _check_pieces(replace(kernel, schedule=schedule))
    return schedule


def _check_pieces(kernel: Kernel) -> None:
    for inner in tiling(kernel).inner:
        if inner is None or not inner.persistent or inner.cluster_size == 1:
            continue
        assert isinstance(inner.points_per_cta, int) and isinstance(inner.size, int), (
            "a tile of known size covers it"
        )
        if (
            inner.points_per_cta > inner.block
            or inner.points_per_cta * (inner.cluster_size - 1) >= inner.size
        ):
            raise CodegenError(
                f"{inner.cluster_size} programs share the {inner.size} points of {kernel.name}",
                hint="each has a point at least, and all of its points at once",
            )


@dataclass(frozen=True)
class _Access:
    itemsize: int
    offset: Size


class _Chooser:
    """The choice for one kernel: what it reads and writes, and how large its axes are taken to be."""

    def __init__(self, kernel: Kernel, request: TileRequest, sm_count: int) -> None:
        self.kernel = kernel
        self.request = request
        self.known = SymbolTable(kernel.symbols)
        self.sm_count = sm_count
        self.flat = can_flatten(kernel)
        self.outer = tuple(kernel.outer) + (kernel.phases[0].axes if self.flat else ())
        self.phases: tuple[tuple[Axis, ...], ...] = (
            ((),) if self.flat else tuple(p.axes for p in kernel.phases)
        )
        self.accesses = tuple(_accesses(kernel))
        self.cluster = request.cluster
        self.words = point_words(kernel)

    def piece(self, axes: Sequence[Axis]) -> int:
        """How many points of the axes a program is taken to have."""
        return cdiv_int(self.extent(axes), self.cluster)

    def extent(self, axes: Sequence[Axis]) -> int:
        """How many points the axes are taken to have."""
        return self.known.hint(product(axis.size for axis in axes))

    # --- the tiles of a request ---

    def requested(self) -> TileLoops:
        blocks = dict(self.request.blocks)
        by_name = {axis.name: axis for axis in self.outer}
        named = [by_name[name] for name in blocks if name in by_name]
        if len(named) > 2:
            raise CodegenError(
                f"the schedule of {self.kernel.name} names {len(named)} outer axes",
                hint="a tile has one outer dimension, or two",
            )
        outer = self.dims(named, [blocks[axis.name] for axis in named])
        inner = tuple(self.requested_inner(k, blocks) for k in range(len(self.phases)))
        stages = self.request.stages or self.stages(outer, inner)
        return TileLoops(outer, inner, self.request.warps, stages, self.cluster)

    def requested_inner(self, phase: int, blocks: Mapping[str, int]) -> InnerTile | None:
        serial, axes = self.split(phase)
        if not axes:
            return None
        size = product(axis.size for axis in axes)
        block = named_block(axes, blocks, 1)
        length = next_power_of_two(self.piece(axes))
        block = min(block if block > 1 else 1024, length)
        fits = isinstance(size, int) and self.piece(axes) <= block
        return InnerTile(names(axes), block, fits, names(serial))

    def dims(self, tiled: Sequence[Axis], blocks: Sequence[int]) -> tuple[Tile, ...]:
        """The outer dimensions: two tiles of their own, or all axes flattened into one that ends with ``tiled``."""
        rest = tuple(axis for axis in self.outer if axis not in tiled)
        if len(tiled) < 2:
            block = blocks[0] if blocks else 1
            return (Tile(names((*rest, *tiled)), block),) if self.outer else ()
        tiles = tuple(Tile((axis.name,), block) for axis, block in zip(tiled, blocks))
        return ((Tile(names(rest)),) if rest else ()) + tiles

    def split(self, phase: int) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
        """(axes looped over point by point, axes tiled): a scan runs along the last axis alone."""
        axes = self.phases[phase]
        scans = any(isinstance(s, ScanStore) for s in self.kernel.phases[phase].statements)
        return (axes[:-1], axes[-1:]) if scans else ((), axes)

    # --- the default ---

    def chosen(self) -> TileLoops:
        if not any(self.phases):
            return self.chosen_map()
        columns = self.runs_along_outer()
        rows = self.extent(self.outer) * self.cluster
        longest = max(
            (k for k in range(len(self.phases)) if self.phases[k]), key=lambda k: self.extent(self.phases[k])
        )
        if sorts(self.kernel):
            return self.sorting(longest, rows, columns)
        block, x, persistent = (self.column_tile if columns else self.row_tile)(longest, rows)
        if self.holds_sums():
            block = max(1, min(block, SUMMED_TILE // x))
        inner = tuple(self.chosen_inner(k, block, persistent) for k in range(len(self.phases)))
        outer = self.flattened(x)
        warps = self.roomy(self.warps(x, block, columns, persistent), x * block)
        return TileLoops(outer, inner, warps, self.stages(outer, inner), self.cluster)

    def flattened(self, block: int) -> tuple[Tile, ...]:
        """All outer axes as one dimension, if there are any."""
        return (Tile(names(self.outer), block),) if self.outer else ()

    def sorting(self, phase: int, rows: int, columns: bool) -> TileLoops:
        """Whole rows, several where they are short, or as many columns as an access of memory brings."""
        block = next_power_of_two(self.extent(self.split(phase)[1]))
        least = min(max(1, SECTOR // self.widest()) if columns else 1, next_power_of_two(rows))
        x = max(least, self.shared_out(max(1, SORTED_TILE // block), rows))
        inner = tuple(self.chosen_inner(k, block, True) for k in range(len(self.phases)))
        warps = max(1, min(_MOST_WARPS, x * block // (_WARP * SORTED_ELEMENTS)))
        return TileLoops(self.flattened(x), inner, warps)

    def warps(self, x: int, block: int, columns: bool, persistent: bool) -> int:
        """The warps for a tile of ``x`` rows, or columns, and ``block`` elements of each."""

        def at(elements: int) -> int:
            return next_power_of_two(x * block // (_WARP * elements))

        statements = (each for phase in self.kernel.phases for each in phase.statements)
        if self.holds_sums():
            wanted = at(TILE_ELEMENTS // 2)
        elif any(isinstance(each, Accumulate) and len(each.values) > 1 for each in statements):
            wanted = at(PAIRED_ELEMENTS)
        elif columns and not persistent and self.states() > LIGHT_STATES:
            wanted = at(TILE_ELEMENTS // 2)
        elif columns or x > 1:
            wanted = at(TILE_ELEMENTS)
        elif persistent:
            wanted = max(min(at(ROW_ELEMENTS), ROW_WARPS), at(TILE_ELEMENTS))
        else:
            wanted = min(at(LOOPED_ELEMENTS), WIDE_SCAN_WARPS if self.scans_wide() else _MOST_WARPS)
        return max(1, min(wanted, 16 if columns and not persistent else _MOST_WARPS))

    def roomy(self, warps: int, elements: int) -> int:
        """As many warps for a tile, or more where a thread has too few registers for its points."""
        while warps < MOST_EACH_WARPS and elements // (_WARP * warps) > self.fitting(elements):
            warps *= 2
        return warps

    def fitting(self, each: int) -> int:
        """At most so many points for each thread, fewer where it has too few registers for them."""
        while each > 1 and each * self.words > POINT_REGISTERS:
            each //= 2
        return each

    def chosen_inner(self, phase: int, block: int, persistent: bool) -> InnerTile | None:
        serial, axes = self.split(phase)
        if not axes:
            return None
        size = product(axis.size for axis in axes)
        own = min(block, next_power_of_two(self.piece(axes)))
        fits = persistent and isinstance(size, int) and self.piece(axes) <= own
        return InnerTile(names(axes), own, fits, names(serial))

    def row_tile(self, phase: int, rows: int) -> tuple[int, int, bool]:
        """(elements of a row at once, rows per program, whether that is all of the row)."""
        _, axes = self.split(phase)
        length = next_power_of_two(self.piece(axes))
        static = isinstance(product(axis.size for axis in axes), int)
        limit = PERSISTENT_LIMIT // max(1, self.live_rows() - 2)
        persistent = static and length <= limit
        again = sum(bool(axes) for axes in self.phases) > 1
        looped = REREAD_ROW if again else LOOPED_ROW
        if self.scans_wide() and index_words(self.kernel) > 1:
            looped //= 2  # registers hold wide indices beside wide values
        block = length if persistent else min(length, looped)
        x = max(1, 2048 // block)
        return block, self.shared_out(x, rows), persistent

    def column_tile(self, phase: int, rows: int) -> tuple[int, int, bool]:
        """The same where neighbours in memory are neighbours along an outer axis."""
        _, axes = self.split(phase)
        length = next_power_of_two(self.piece(axes))
        static = isinstance(product(axis.size for axis in axes), int)
        sector = max(1, SECTOR // self.widest())
        x = max(sector, self.shared_out(min(64, next_power_of_two(rows)), rows))
        block = min(length, max(1, COLUMN_TILE // x))
        if block < length and self.states() > LIGHT_STATES:
            block = max(1, block // 4)
        return block, min(x, next_power_of_two(rows)), static and length == block

    def stages(self, outer: Sequence[Tile], inner: Sequence[InnerTile | None]) -> int:
        """How many tiles are on their way in loops that accumulate; 1 where these have no room for more, or where only
        a loaded value says what to read."""
        if self.cluster == 1 or not self.runs_along_outer():
            return 1
        columns = prod(dim.block for dim in outer)
        held = 0
        for phase, each in zip(self.kernel.phases, inner):
            if each is not None and not each.persistent and accumulates(phase.statements):
                found = set(
                    loads(*(value for statement in phase.statements for value in values_of(statement)))
                )
                if any(indirects_in(load.index[0]) for load in found):
                    return 1
                held = max(held, sum(load.dtype.itemsize for load in found) * each.block * columns)
        return STAGES if 0 < held * STAGES <= STAGED_BYTES else 1

    def effort(self) -> int:
        """The cost of the dearest statement at a point, in adds."""
        bodies = (values_of(each) for phase in self.kernel.phases for each in phase.statements)
        return max(
            (sum(OPS[node.name].cost for node in walk(*body) if isinstance(node, Op)) for body in bodies),
            default=0,
        )

    def holds_sums(self) -> bool:
        """True where a body holds a sum of its own."""
        statements = (each for phase in self.kernel.phases for each in phase.statements)
        return any(nested_reductions(*values_of(each)) for each in statements)

    def states(self) -> int:
        """How many values an element of a tile is combined into, those of all reductions together."""
        statements = (each for phase in self.kernel.phases for each in phase.statements)
        accumulated = [each for each in statements if isinstance(each, Accumulate)]
        kinds = (
            each.combiner.name if isinstance(each.combiner, NamedCombiner) else "" for each in accumulated
        )
        return sum(_STATES.get(kind, len(each.values)) for kind, each in zip(kinds, accumulated))

    def scans_wide(self) -> bool:
        """True where a scan takes more than one 32-bit register for a value of an element."""
        statements = (each for phase in self.kernel.phases for each in phase.statements)
        scans = (each for each in statements if isinstance(each, ScanStore))
        return any(dtype_words(value.dtype) > 1 for each in scans for value in each.values)

    def shared_out(self, x: int, rows: int) -> int:
        """At most ``x`` rows per program, fewer where SMs would be left idle."""
        x = min(x, next_power_of_two(rows))
        while x > 1 and rows // x < 2 * self.sm_count:
            x //= 2
        return x

    def live_rows(self) -> int:
        """How many different rows a persistent kernel may hold at a time."""
        inner = {axis.name for axes in self.phases for axis in axes}
        return len({access.offset for access in self.accesses if free_symbols(access.offset) & inner})

    def runs_along_outer(self) -> bool:
        """True when more bytes are neighbours along the last outer axes than along inner ones."""
        votes = self.votes()
        inner = {axis.name for axes in self.phases for axis in axes}
        along_inner = sum(weight for name, weight in votes.items() if name in inner)
        touched = sum(
            weight
            for name, weight in votes.items()
            if name not in inner and any(free_symbols(a.offset) & inner for a in self.accesses)
        )
        return touched > along_inner

    def votes(self) -> Counter[str]:
        """Per axis, the bytes of the accesses for which it is the one with unit stride."""
        axes = [*self.outer, *(axis for phase in self.phases for axis in phase)]
        votes: Counter[str] = Counter()
        for access in self.accesses:
            names = free_symbols(access.offset)
            moving = [axis for axis in axes if axis.name in names]
            for axis in moving:
                if coefficient(access.offset, axis.name) == 1:
                    votes[axis.name] += access.itemsize * self.extent(moving)
        return votes

    def wider(self) -> int:
        """How many times as many points as one access brings a thread of a map has, and fewer threads for it."""
        if self.holds_sums():
            return 1  # registers hold what every sum reads
        if any(indirects_in(access.offset) for access in self.accesses):
            return GATHERS
        return 2 if self.effort() >= HEAVY else 1

    def chosen_map(self) -> TileLoops:
        votes = self.votes()
        axes = [axis for axis in self.outer if axis.size != 1]
        wanted = sorted((axis for axis in axes if votes[axis.name]), key=lambda axis: -votes[axis.name])
        inner = tuple(None for _ in self.phases)
        if (
            len(wanted) >= 2
            and self.conflict(wanted[0], wanted[1])
            and all(self.extent([a]) > 4 for a in wanted[:2])
        ):
            # Two accesses want different neighbours: a square tile serves both through shared memory.
            y, x = wanted[1], wanted[0]
            blocks = [min(SQUARE_TILE, next_power_of_two(self.extent([axis]))) for axis in (y, x)]
            if (
                min(blocks) == SQUARE_TILE
                and self.extent(axes) < 2 * self.sm_count * SQUARE_TILE * SQUARE_TILE
            ):
                blocks = [SQUARE_TILE // 2] * 2
            warps = blocks[0] * blocks[1] // (_WARP * self.fitting(SQUARE_ELEMENTS))
            return TileLoops(self.dims([y, x], blocks), inner, max(1, warps))
        if wanted and axes and wanted[0] is not axes[-1] and not votes[axes[-1].name]:
            axes = [axis for axis in axes if axis is not wanted[0]] + [wanted[0]]
        points = self.extent(axes)
        wider = self.wider()
        each, threads = self.fitting(LOAD_BYTES // self.widest() * wider), MAP_THREADS // wider
        block = threads * each
        while block > _LEAST_TILE and cdiv_int(points, block) < 2 * self.sm_count:
            block //= 2
        block = min(block, next_power_of_two(points))
        outer = (Tile(names(axes), block),) if axes else ()
        return TileLoops(outer, inner, max(1, min(threads // _WARP, block // (_WARP * each))))

    def conflict(self, first: Axis, second: Axis) -> bool:
        """True when an access runs along ``second`` and takes strides along ``first``."""
        return any(
            coefficient(access.offset, second.name) == 1
            and coefficient(access.offset, first.name) not in (0, 1)
            for access in self.accesses
        )

    def widest(self) -> int:
        return max((access.itemsize for access in self.accesses), default=4)


def cdiv_int(a: int, b: int) -> int:
    """``a / b`` rounded up."""
    return -(-a // b)


def _accesses(kernel: Kernel) -> Iterator[_Access]:
    """Every distinct load and store."""
    seen: dict[_Access, None] = {}
    for phase in kernel.phases:
        for buffer, offset in _touched(phase):
            seen[_Access(kernel.parameter(buffer).dtype.itemsize, offset)] = None
    yield from seen


def _touched(phase: Phase) -> Iterator[tuple[str, Size]]:
    for statement in phase.statements:
        for load in loads(*values_of(statement)):
            yield load.buffer, load.index[0]
        yield from targets_of(statement)
