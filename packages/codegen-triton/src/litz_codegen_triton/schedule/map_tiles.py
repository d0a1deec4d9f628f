"""Tiles of outer points: of maps, and of reductions whose few points each thread visits."""

from __future__ import annotations

from collections.abc import Sequence

from litz_codegen_triton.emit.loops.tiles import next_power_of_two
from litz_codegen_triton.schedule.kernel_traits import KernelTraits
from litz_codegen_triton.schedule.request import names
from litz_ir.loops import Axis
from litz_ir.plan import InnerTile, Tile, TileLoops
from litz_ir.symbols import free_symbols
from litz_ir.target import DeviceModel

_MAP_THREADS = 256
"""Threads of a thread block of a map."""

_MIN_MAP_TILE = 128
"""Elements down to which tiles of a map are halved so that no SM is idle."""

_WINDOW_THREADS = 128
"""Threads of a thread block whose threads each reduce windows."""

_WINDOW_ITEMSIZE = 4
"""Bytes of an element at which a thread that reduces windows loads 16 bytes at once. Of larger ones it loads more."""

_HIGH_COST = 16
"""Cost of a point, in additions, from which on half as many threads of a map have twice as many points each, so that
the latencies of independent points overlap."""

_COSTLY_LOADS = 2
"""Loads of 16 bytes by each thread of such a map."""

_GATHERED_LOADS = 4
"""Loads of 16 bytes by each thread of a map with indirect indices, which loads and checks an index once for all."""

_SQUARE_TILE = 64
"""Size of a square tile along both dimensions, for accesses with unit stride along different axes."""

_SQUARE_ELEMENTS = 32
"""Elements of a thread in a square tile."""

_DOMINANT = 4
"""Lanes run along the axis with unit stride in more than 4 times the bytes of the last axis, whatever eager's order."""

POINT_REGISTERS = 192
"""Registers, of the 255 that a thread can have, for the values of its points. Where they need more, a thread of a map
has fewer points, and another tile has more threads, but none that leave a thread fewer registers than it can have."""


def schedule_map(traits: KernelTraits, model: DeviceModel) -> TileLoops:
    """Schedule a kernel without inner axes."""
    traffic = traits.unit_stride_bytes()
    axes = [axis for axis in traits.outer if axis.size != 1]
    contiguous = sorted((axis for axis in axes if traffic[axis.name]), key=lambda axis: -traffic[axis.name])
    if (
        len(contiguous) >= 2
        and traits.is_transposed(contiguous[0], contiguous[1])
        and all(traits.extent([axis]) > 4 for axis in contiguous[:2])
    ):
        return _square_map(traits, model, contiguous[1], contiguous[0])
    if contiguous and traffic[contiguous[0].name] > _DOMINANT * traffic[axes[-1].name]:
        axes = [axis for axis in axes if axis is not contiguous[0]] + [contiguous[0]]
    count = _loads_per_thread(traits)
    per_thread = fitting(traits, model.vector_bytes // traits.max_itemsize(axes[-1:]) * count)
    threads = _MAP_THREADS // count
    whole = _COSTLY_LOADS == count and len(axes) > 1 and not traits.gathers()
    if whole and traits.has_short_rows(axes[-1], model.warp_size * per_thread // count, threads * per_thread):
        return _map_of_rows(traits, model, axes, threads, per_thread)
    divided = len(axes) > 1 and traits.has_costly_rows(axes[-1], per_thread, threads * per_thread)
    tiled = axes[-1:] if divided else axes
    block = _filling(threads * per_thread, _MIN_MAP_TILE, traits.extent(axes), model)
    rows = (Tile(names(axes[:-1])),) if divided else ()
    outer = (*rows, Tile(names(tiled), block)) if axes else ()
    return TileLoops(outer, (None,) * len(traits.phases), _warps(threads, block, per_thread, model))


def _map_of_rows(
    traits: KernelTraits, model: DeviceModel, axes: Sequence[Axis], threads: int, per_thread: int
) -> TileLoops:
    """Return a schedule with a tile of whole rows, so that a thread computes what a row has of its own once, and not
    once for each element. On an H200 the gradient of a cross-entropy of 1,024 classes in bf16 takes 158 us, 178 in flat
    tiles."""
    *rest, last = axes
    length = traits.extent([last])
    block = _filling(
        threads * per_thread, max(_MIN_MAP_TILE, length), max(length, traits.extent(axes)), model
    )
    outer = (Tile(names(rest), block // length), Tile(names([last]), length))
    return TileLoops(outer, (None,) * len(traits.phases), _warps(threads, block, per_thread, model))


def schedule_windows(traits: KernelTraits, model: DeviceModel) -> TileLoops:
    """Schedule reductions whose few points each thread visits: tiles of outer points, as of a map."""
    names_inside = {axis.name for axes in traits.phases for axis in axes}
    loaded = max(each.itemsize for each in traits.accesses if free_symbols(each.offset) & names_inside)
    per_thread = fitting(traits, model.vector_bytes // min(loaded, _WINDOW_ITEMSIZE))
    block = _filling(_WINDOW_THREADS * per_thread, model.warp_size, traits.extent(traits.outer), model)
    inner = tuple(InnerTile(names(axes), 1) if axes else None for axes in traits.phases)
    return TileLoops(flattened(traits.outer, block), inner, _warps(_WINDOW_THREADS, block, per_thread, model))


def fitting(traits: KernelTraits, points: int) -> int:
    """Halve a thread's number of points until ``POINT_REGISTERS`` suffice for them."""
    while points > 1 and points * traits.words > POINT_REGISTERS:
        points //= 2
    return points


def flattened(outer: Sequence[Axis], block: int) -> tuple[Tile, ...]:
    """Return all outer axes as one dimension, if there are any."""
    return (Tile(names(outer), block),) if outer else ()


def outer_tiles(outer: Sequence[Axis], tiled: Sequence[Axis], blocks: Sequence[int]) -> tuple[Tile, ...]:
    """Return the outer dimensions: one for each of two ``tiled`` axes, or one of all axes that ends with them."""
    rest = tuple(axis for axis in outer if axis not in tiled)
    if len(tiled) < 2:
        return flattened((*rest, *tiled), blocks[0] if blocks else 1)
    tiles = tuple(Tile((axis.name,), block) for axis, block in zip(tiled, blocks))
    return ((Tile(names(rest)),) if rest else ()) + tiles


def _filling(block: int, least: int, points: int, model: DeviceModel) -> int:
    """Halve a tile down to ``least`` elements while SMs are idle; it has no more than ``points`` rounded up."""
    while block > least and -(-points // block) < 2 * model.sm_count:
        block //= 2
    return min(block, next_power_of_two(points))


def _warps(threads: int, block: int, per_thread: int, model: DeviceModel) -> int:
    """Return the warps of at most ``threads`` threads that have ``per_thread`` elements of a tile each."""
    return max(1, min(threads // model.warp_size, block // (model.warp_size * per_thread)))


def _loads_per_thread(traits: KernelTraits) -> int:
    """Return the 16-byte loads of a thread of a map; the thread block has fewer threads by the same ratio."""
    if traits.has_nested_reductions():
        return 1  # the loads of nested reductions need the registers
    if traits.gathers():
        return _GATHERED_LOADS
    return _COSTLY_LOADS if traits.compute_cost() >= _HIGH_COST else 1


def _square_map(traits: KernelTraits, model: DeviceModel, y: Axis, x: Axis) -> TileLoops:
    """Return a schedule with a tile of two dimensions, for accesses with unit stride along either axis: Triton
    transposes the tile in shared memory."""
    blocks = [min(_SQUARE_TILE, next_power_of_two(traits.extent([axis]))) for axis in (y, x)]
    enough = 2 * model.sm_count * _SQUARE_TILE * _SQUARE_TILE
    if min(blocks) == _SQUARE_TILE and traits.extent(traits.outer) < enough:
        blocks = [_SQUARE_TILE // 2] * 2
    warps = blocks[0] * blocks[1] // (model.warp_size * fitting(traits, _SQUARE_ELEMENTS))
    outer = outer_tiles(traits.outer, [y, x], blocks)
    return TileLoops(outer, (None,) * len(traits.phases), max(1, warps))
