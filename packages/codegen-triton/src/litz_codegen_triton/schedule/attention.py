"""The schedule of fused attention: tile sizes, warps and stages."""

from __future__ import annotations

from collections.abc import Sequence

from litz_codegen_triton.emit.loops.fused_attention import (
    MIN_TILE_SIZE,
    SOFTMAX,
    FusedAttention,
    p_operand_of,
)
from litz_codegen_triton.emit.loops.tiles import next_power_of_two
from litz_codegen_triton.schedule.request import named_block, names
from litz_codegen_triton.tables import AttentionTile, Chip
from litz_codegen_triton.tables.tiles import AttentionTiles
from litz_ir.loops import Axis
from litz_ir.plan import Accumulate, Attention, InnerTile, LaunchOrder, Tile, TileRequest
from litz_ir.scalar import Expr, Index, Op, walk
from litz_ir.symbols import SymbolTable, product, summands, symbol


def schedule_attention(
    request: TileRequest, found: FusedAttention, known: SymbolTable, chip: Chip
) -> Attention:
    """Schedule a kernel that computes the attention ``found``.

    Tiles are those of the request if it names blocks; otherwise the default ones, cut down to the extents of rows and
    summed points, and so that no SM is idle.
    """

    def extent(axes: Sequence[Axis]) -> int:
        return known.hint(product(axis.size for axis in axes))

    tiles = chip.tiles.attention
    default = _default_tile(found, extent(found.columns), extent(found.summed), chip)
    if request.blocks:
        named = dict(request.blocks)
        given = (found.rows, found.columns, found.summed)
        y, x, r = (named_block(axes, named, MIN_TILE_SIZE) for axes in given)
        x = x if found.columns else 1
        warps, stages = request.warps, request.stages or default.stages
    else:
        y = _rows(default.rows, extent(found.rows), extent(found.batch), chip)
        x = _whole_tile(extent(found.columns), tiles) if found.columns else 1
        r = max(MIN_TILE_SIZE, min(default.summed, next_power_of_two(extent(found.summed))))
        warps, stages = (
            min(default.warps, max(tiles.least_warps, default.warps * y // default.rows)),
            default.stages,
        )
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
        order=_order(found, extent(found.batch) * -(-extent(found.rows) // y), chip),
        descriptors=request.descriptors or default.descriptors,
    )


def _order(found: FusedAttention, count: int, chip: Chip) -> LaunchOrder:
    """Return the order in which rows with more summed points start first, for so many tiles.

    A row sums the points of the blocks that its mask lists, of which the comparisons of positions in the mask tell
    whether later rows have more. Without a loop bound all rows have the same.
    """
    if found.loop_bound is None or not found.rows:
        return "batch"
    if not _is_forward(found) and count > chip.tiles.attention.tiles_by_rows * chip.model.sm_count:
        return "batch"
    row, point, trend = found.rows[-1].name, found.summed[-1].name, 0
    for node in walk(*map(p_operand_of, found.statements)):
        if isinstance(node, Op) and node.name in ("ge", "gt", "le", "lt"):
            of_row, of_point = (
                _slope(node.args[0], name) - _slope(node.args[1], name) for name in (row, point)
            )
            if of_row * of_point < 0:
                trend += 1 if (of_row > 0) == (node.name in ("ge", "gt")) else -1
    return "last_rows" if trend > 0 else "first_rows" if trend < 0 else "batch"


def _slope(position: Expr, name: str) -> int:
    """Return the coefficient of an axis in a position or a difference of positions; it may select a block as well."""
    match position:
        case Index():
            terms = summands(position.term)
            return sum(scale for monomial, scale in terms if monomial == (symbol(name),))
        case Op(name="sub", args=(minuend, subtrahend)):
            return _slope(minuend, name) - _slope(subtrahend, name)
        case Op(name="cast", args=(inner,)):
            return _slope(inner, name)
    return 0


def _whole_tile(size: int, tiles: AttentionTiles) -> int:
    """Return the tile size that covers ``size`` columns, at most ``columns``."""
    return min(tiles.columns, max(MIN_TILE_SIZE, next_power_of_two(size)))


def _default_tile(found: FusedAttention, columns: int, points: int, chip: Chip) -> AttentionTile:
    """Return the default tile of an attention with these numbers of columns and summed points.

    Chips with clusters multiply operands in shared memory, which then need no registers.
    """
    model, tiles = chip.model, chip.tiles.attention
    size = max(64, _whole_tile(max(columns, found.head_dim), tiles))
    if found.dtype.bits > 16:
        return (tiles.exact if found.precision == "ieee" else tiles.rounded)[size]
    described = model.tensor_descriptors and points >= tiles.described_points and found.columns
    listed, pair = found.loop_bound is not None, len(found.statements) == 2
    if _is_forward(found):
        rule = tiles.listed_weights if listed else tiles.weights
        better = tiles.described_listed_weights if listed else tiles.described_weights
    elif pair and model.max_cluster_size > 1:
        rule, better = tiles.pairs, tiles.described_listed_pairs if listed else tiles.described_pairs
        if described and listed and size == 64 and _operations(found) >= tiles.large_pair_operations:
            return tiles.large_pair
    else:
        rule, better = tiles.sums, tiles.described_listed_sums if listed else tiles.described_sums
    return (described and better.get(size)) or rule[size]


def _operations(found: FusedAttention) -> int:
    """Return the number of operations on tiles of floats in all operands P: more where a function changes the score."""
    rows, points = (frozenset(axis.name for axis in axes) for axes in (found.rows, found.summed))
    nodes = set(walk(*map(p_operand_of, found.statements)))
    return sum(
        isinstance(node, Op)
        and node.dtype.is_float
        and bool(node.free_symbols & rows and node.free_symbols & points)
        for node in nodes
    )


def _is_forward(found: FusedAttention) -> bool:
    """True for one softmax-weighted sum."""
    first, *others = found.statements
    return not others and isinstance(first, Accumulate) and first.combiner == SOFTMAX


def _rows(limit: int, rows: int, batch: int, chip: Chip) -> int:
    """Return the rows of a tile, at most ``limit``, for ``rows`` rows in each of ``batch`` batches."""
    y = min(limit, max(MIN_TILE_SIZE, next_power_of_two(rows)))
    while y > chip.tiles.attention.least_rows and batch * -(-rows // y) < chip.model.sm_count:
        y //= 2
    return y


def _divisor(block: int, size: int) -> int:
    """Return the largest power of two up to ``block`` that divides ``size``."""
    return min(block, size & -size)


def _summed(
    found: FusedAttention, axes: tuple[Axis, ...], block: int
) -> tuple[tuple[Axis, ...], tuple[Axis, ...], int]:
    """Divide the summed axes into serial ones and tiled ones; also returns the tile size along the latter.

    A tile that divides the last axis stays within one point of the leading axes, which are serial then. It is not
    made smaller than twice ``MIN_TILE_SIZE`` for that, unless there is a loop bound.
    """
    size = axes[-1].size
    if len(axes) > 1 and isinstance(size, int):
        divisor, bound = _divisor(block, size), found.loop_bound
        if bound is not None:
            # The axis of the loop bound is the outermost, so that the points it excludes come last.
            return tuple(sorted(axes[:-1], key=lambda axis: axis.name != bound.axis)), axes[-1:], divisor
        if divisor >= min(block, 2 * MIN_TILE_SIZE):
            return axes[:-1], axes[-1:], divisor
    return (), axes, block
