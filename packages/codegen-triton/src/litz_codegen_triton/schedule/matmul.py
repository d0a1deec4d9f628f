"""The schedule of a matmul: tile sizes, warps and stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from litz_codegen_triton.emit.contraction import Contraction
from litz_codegen_triton.emit.coordinates import TileIndices
from litz_codegen_triton.emit.descriptor import descriptors
from litz_codegen_triton.emit.tiles import next_power_of_two, tiling
from litz_codegen_triton.schedule.request import named_block, names
from litz_ir.dtypes import DType, bf16, f8e4m3fn, f8e5m2, f16, f32, i8
from litz_ir.loops import Axis
from litz_ir.plan import Accumulate, Kernel, Matmul, Operand, Tile, TileRequest
from litz_ir.scalar import Masked, loads, walk
from litz_ir.symbols import SymbolTable, product
from litz_ir.target import Capabilities

LEAST_SIDE = 16
"""The smallest side of a tile that is multiplied."""

MIN_K_BYTES = 32
"""What a line of summed points takes at least, where numbers of 8 bits are multiplied."""

STAGE_BYTES = 32 << 10
"""What the tiles of both factors take at most: with ``STAGES`` of them on their way, all chips hold them."""

STAGES = 3

MAX_BLOCK_K = 256
"""The most points that are summed at a time."""

MAX_GATHERED_K, GATHERED_BYTES = 64, 64
"""The most points that are summed at a time of gathered factors, and the most bytes that a thread takes of a tile of
one: elements that have an address and a test each fill its registers."""


@dataclass(frozen=True, slots=True)
class _Sides:
    """The largest side of a tile of results, and the smallest that idle SMs make of it."""

    most: int
    fewest: int


_SIDES: Mapping[DType, _Sides] = MappingProxyType(
    {
        bf16: _Sides(128, 32),
        f16: _Sides(128, 32),
        f8e4m3fn: _Sides(128, 32),
        f8e5m2: _Sides(128, 32),
        i8: _Sides(128, 32),
        f32: _Sides(64, 32),
    }
)

OPERANDS: tuple[Operand, Operand] = ("left", "right")

EIGHT_WARP_RESULTS = 128 * 128
"""The results of a program from which it has eight warps, not four."""


def schedule_matmul(
    kernel: Kernel, request: TileRequest, found: Contraction, known: SymbolTable, capabilities: Capabilities
) -> Matmul:
    """The schedule of a kernel that computes a contraction: with the tiles of its request where that names blocks, else
    with tiles as large as leaves no SM without one."""

    def extent(axes: Sequence[Axis]) -> int:
        return known.hint(product(axis.size for axis in axes))

    summed = kernel.phases[found.phase].axes
    if request.blocks:
        named = dict(request.blocks)
        y, x, r = (named_block(axes, named, LEAST_SIDE) for axes in (found.rows, found.columns, summed))
        r = max(r, min_block_k(found.dtype))
        warps, stages = request.warps, request.stages or STAGES
    else:
        extents = extent(found.rows), extent(found.columns), extent(found.batch)
        y, x = _sides(found.dtype, *extents, capabilities.sm_count)
        warps, stages = (8 if y * x >= EIGHT_WARP_RESULTS else 4), STAGES
        r = _summed(found.dtype, y + x, extent(summed))
        if _is_gathered(kernel, found):
            fits = GATHERED_BYTES * 32 * warps // (max(y, x) * found.dtype.itemsize)
            r = max(min_block_k(found.dtype), min(r, fits, MAX_GATHERED_K))
    # The grid is known when the kernel is launched, so tiles that are taken in turn must be known in number.
    sizes = (axis.size for axis in (*found.batch, *found.rows, *found.columns))
    schedule = Matmul(
        batch=names(found.batch),
        rows=Tile(names(found.rows), y),
        columns=Tile(names(found.columns), x),
        summed=Tile(names(summed), r),
        warps=warps,
        stages=stages,
        grid=request.grid if all(isinstance(size, int) for size in sizes) else 0,
    )
    return with_descriptors(kernel, schedule) if request.descriptors else schedule


def with_descriptors(kernel: Kernel, schedule: Matmul) -> Matmul:
    """The schedule with those of its operands read through descriptors whose memory allows it."""
    own = replace(kernel, schedule=schedule)
    pairs = zip(OPERANDS, descriptors(TileIndices(own, tiling(own))), strict=True)
    return replace(schedule, descriptors=tuple(operand for operand, made in pairs if made is not None))


def _is_gathered(kernel: Kernel, found: Contraction) -> bool:
    """True where summed points lie along no line of a factor: along several axes, or where a test says that they do and
    what is read is not linear in them."""
    phase = kernel.phases[found.phase]
    values = (each for s in phase.statements if isinstance(s, Accumulate) for each in s.values)
    tests = (node for node in walk(*values) if isinstance(node, Masked))
    places = (term for load in loads(*tests) for term in load.index)
    return len(phase.axes) > 1 or any(not isinstance(term, int) and not term.is_polynomial for term in places)


def _sides(dtype: DType, rows: int, columns: int, batch: int, sm_count: int) -> tuple[int, int]:
    """The rows and columns of a tile: halved, the longer side first, while SMs would be left idle."""
    sides = _SIDES[dtype]
    y, x = (min(sides.most, max(LEAST_SIDE, next_power_of_two(size))) for size in (rows, columns))

    def programs() -> int:
        return batch * -(-rows // y) * -(-columns // x)

    while programs() < sm_count and max(y, x) > sides.fewest:
        if x >= y:
            x //= 2
        else:
            y //= 2
    return y, x


def _summed(dtype: DType, lines: int, length: int) -> int:
    """How many points are summed at a time, of so many lines of both factors."""
    most = min(MAX_BLOCK_K, STAGE_BYTES // (lines * dtype.itemsize))
    fits = 1 << (most.bit_length() - 1)
    return max(min_block_k(dtype), min(fits, next_power_of_two(length)))


def min_block_k(dtype: DType) -> int:
    """The fewest points that are summed at a time of factors of a dtype."""
    return MIN_K_BYTES if dtype.itemsize == 1 else LEAST_SIDE
