"""The schedule of fused attention: tile sizes, warps and stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from litz_codegen_triton.emit.fused_attention import MIN_TILE_SIZE, SOFTMAX, FusedAttention
from litz_codegen_triton.emit.tiles import next_power_of_two
from litz_codegen_triton.schedule.request import named_block, names
from litz_ir.loops import Axis
from litz_ir.plan import Accumulate, Attention, InnerTile, Tile, TileRequest
from litz_ir.symbols import SymbolTable, product
from litz_ir.target import Capabilities

MAX_COLUMNS = 256
"""The most columns of a program: with fewer than there are, others would compute the same left factors."""

MIN_TILE_ROWS = 64
"""The smallest number of rows of a tile that idle SMs make of it: the tensor cores of sm_90 take as many."""

MIN_WARPS = 4


@dataclass(frozen=True, slots=True)
class _Tile:
    """Rows, summed points, warps and stages."""

    rows: int
    summed: int
    warps: int
    stages: int


_Rule = Mapping[int, _Tile]

_WEIGHTS: _Rule = MappingProxyType(
    {64: _Tile(128, 64, 4, 3), 128: _Tile(64, 64, 4, 3), 256: _Tile(64, 32, 4, 2)}
)
_SUMS: _Rule = MappingProxyType({64: _Tile(64, 64, 4, 3), 128: _Tile(64, 64, 4, 2), 256: _Tile(64, 32, 8, 2)})
_EXACT: _Rule = MappingProxyType(
    {64: _Tile(64, 32, 8, 2), 128: _Tile(32, 16, 8, 2), 256: _Tile(16, 16, 8, 2)}
)
_ROUNDED: _Rule = MappingProxyType(
    {64: _Tile(64, 32, 4, 2), 128: _Tile(64, 32, 8, 2), 256: _Tile(32, 16, 8, 2)}
)
"""Tiles by the larger of the points of a fold and the columns: of one sum weighed by a softmax, of other sums of narrow
floats, of ``f32``, of ``f32`` that is rounded to TF32 where it is multiplied."""


def schedule_attention(
    request: TileRequest, found: FusedAttention, known: SymbolTable, capabilities: Capabilities
) -> Attention:
    """The schedule of a kernel that computes a chain: with the tiles of its request where that names blocks, else with
    those of the rule, cut down to what there is of rows and summed points and so that no SM is idle."""

    def extent(axes: Sequence[Axis]) -> int:
        return known.hint(product(axis.size for axis in axes))

    rule = _rule(found, extent(found.columns))
    if request.blocks:
        named = dict(request.blocks)
        given = (found.rows, found.columns, found.summed)
        y, x, r = (named_block(axes, named, MIN_TILE_SIZE) for axes in given)
        x = x if found.columns else 1
        warps, stages = request.warps, request.stages or rule.stages
    else:
        y = _rows(rule.rows, extent(found.rows), extent(found.batch), capabilities.sm_count)
        x = whole_tile(extent(found.columns)) if found.columns else 1
        r = max(MIN_TILE_SIZE, min(rule.summed, next_power_of_two(extent(found.summed))))
        warps, stages = min(rule.warps, max(MIN_WARPS, rule.warps * y // rule.rows)), rule.stages
    if found.row_block:
        y = _divisor(y, found.row_block)
    serial, tiled, r = _summed(found, found.summed, r)
    return Attention(
        batch=names(found.batch),
        rows=Tile(names(found.rows), y),
        columns=Tile(names(found.columns), x),
        summed=InnerTile(names(tiled), r, serial=names(serial)),
        warps=warps,
        stages=stages,
    )


def whole_tile(size: int) -> int:
    """The tile that has all of so many points, up to ``WIDEST``."""
    return min(MAX_COLUMNS, max(MIN_TILE_SIZE, next_power_of_two(size)))


def _rule(found: FusedAttention, columns: int) -> _Tile:
    """The tile that a chain has where there is enough of everything."""
    first, *others = found.statements
    alone = not others and isinstance(first, Accumulate) and first.combiner == SOFTMAX
    wide = _EXACT if found.precision == "ieee" else _ROUNDED
    rule = wide if found.dtype.bits > 16 else _WEIGHTS if alone else _SUMS
    return rule[max(64, whole_tile(max(columns, found.head_dim)))]


def _rows(most: int, rows: int, batch: int, sm_count: int) -> int:
    """The rows of a tile, where there are so many rows for each of so many batches."""
    y = min(most, max(MIN_TILE_SIZE, next_power_of_two(rows)))
    while y > MIN_TILE_ROWS and batch * -(-rows // y) < sm_count:
        y //= 2
    return y


def _divisor(block: int, size: int) -> int:
    """The largest power of two up to ``block`` that divides ``size``."""
    return min(block, size & -size)


def _summed(
    found: FusedAttention, axes: tuple[Axis, ...], block: int
) -> tuple[tuple[Axis, ...], tuple[Axis, ...], int]:
    """(axes of which a tile has one point, axes that it is a piece of, the length of that piece): a tile does not reach
    from one point of a leading axis into the next one where pieces of that length fit."""
    size = axes[-1].size
    if len(axes) > 1 and isinstance(size, int):
        own, guard = _divisor(block, size), found.loop_bound
        if guard is not None:
            # What the guard cuts off has to lie behind all that it leaves.
            return tuple(sorted(axes[:-1], key=lambda axis: axis.name != guard.axis)), axes[-1:], own
        if own >= min(block, 2 * MIN_TILE_SIZE):
            return axes[:-1], axes[-1:], own
    return (), axes, block
