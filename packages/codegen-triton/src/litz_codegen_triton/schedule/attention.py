"""The schedule of fused attention: tile sizes, warps and stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from litz_codegen_triton.emit.loops.fused_attention import (
    MIN_TILE_SIZE,
    SOFTMAX,
    FusedAttention,
    p_operand_of,
)
from litz_codegen_triton.emit.loops.tiles import next_power_of_two
from litz_codegen_triton.schedule.request import named_block, names
from litz_ir.loops import Axis
from litz_ir.plan import Accumulate, Attention, InnerTile, LaunchOrder, Tile, TileRequest
from litz_ir.scalar import Expr, Index, Op, walk
from litz_ir.symbols import SymbolTable, product, summands, symbol
from litz_ir.target import Capabilities, DeviceModel

_MAX_COLUMNS = 256
"""Most columns of a tile. A tile usually has all columns, since thread blocks of other columns would compute the same
P."""

_MIN_TILE_ROWS = 64
"""Number of rows down to which tiles are halved so that no SM is idle: M of a warp group's MMA on sm_90."""

_MIN_WARPS = 4
"""Fewest warps by default: one warp group of sm_90."""


_MAX_TILES_BY_ROWS = 16
"""Tiles of a gradient for each SM up to which it is quicker to start with the longest rows of all heads than to finish
head after head, whose operands then stay in the L2 cache."""


@dataclass(frozen=True, slots=True)
class _Tile:
    """Default tile of one kind of kernel, for problems that are large enough."""

    rows: int
    """Queries of the tile, in the forward direction."""

    summed: int
    """Keys of the tile, in the forward direction."""

    warps: int
    """Warps of a thread block."""

    stages: int
    """Software pipelining stages."""

    descriptors: bool = False
    """True where tiles along the summed axes are read through tensor descriptors."""


_Rule = Mapping[int, _Tile]

_WEIGHTS: _Rule = MappingProxyType(
    {64: _Tile(64, 64, 4, 3), 128: _Tile(64, 64, 4, 3), 256: _Tile(128, 64, 8, 2)}
)
_LISTED_WEIGHTS: _Rule = MappingProxyType({**_WEIGHTS, 64: _Tile(64, 128, 4, 3)})
_SUMS: _Rule = MappingProxyType({64: _Tile(64, 64, 4, 3), 128: _Tile(64, 64, 4, 2), 256: _Tile(64, 64, 8, 2)})
_PAIRS: _Rule = MappingProxyType({**_SUMS, 64: _Tile(64, 128, 4, 2)})
_EXACT: _Rule = MappingProxyType(
    {64: _Tile(64, 32, 8, 2), 128: _Tile(32, 16, 8, 2), 256: _Tile(16, 16, 8, 2)}
)
_ROUNDED: _Rule = MappingProxyType(
    {64: _Tile(64, 32, 4, 2), 128: _Tile(64, 32, 8, 2), 256: _Tile(32, 16, 8, 2)}
)
"""Default tiles by the larger of the head dimension and the columns, as a power of two: a softmax-weighted sum of
low-precision operands (the forward direction), the same over the blocks that a mask lists, another low-precision sum (a
gradient), two of them, exact ``f32``, ``f32`` in TF32. Those of low precision were timed on an H100."""

_DESCRIBED_WEIGHTS: _Rule = MappingProxyType({256: _Tile(128, 64, 8, 2, True)})
_DESCRIBED_LISTED_WEIGHTS: _Rule = MappingProxyType(
    {**_DESCRIBED_WEIGHTS, 64: _Tile(64, 128, 4, 2, True), 128: _Tile(64, 64, 4, 3, True)}
)
_DESCRIBED_SUMS: _Rule = MappingProxyType({256: _Tile(64, 64, 4, 2, True)})
_DESCRIBED_LISTED_SUMS: _Rule = MappingProxyType(
    {**_DESCRIBED_SUMS, 64: _Tile(64, 64, 4, 2, True), 128: _Tile(64, 64, 4, 2, True)}
)
_DESCRIBED_PAIRS: _Rule = MappingProxyType({256: _Tile(64, 64, 8, 2, True)})
_DESCRIBED_LISTED_PAIRS: _Rule = MappingProxyType({**_DESCRIBED_PAIRS, 128: _Tile(64, 64, 4, 2, True)})
"""Tiles with tensor descriptors, where these are quicker: timed on an H200. Kinds and sizes are those above; lists pay
earlier, since their loops compute more addresses."""

_DESCRIBED_POINTS = 2048
"""Summed points from which descriptors pay, timed where each thread block made its own, in about a microsecond: on an
H200 causal attention over 512 points is 9% slower with them, over 2,048 it is 6 to 25% faster."""

_LARGE_PAIR = _Tile(64, 64, 4, 2, True)
_LARGE_PAIR_OPERATIONS = 20
"""The tile of two sums under a list up to a depth of 64, where scores and gradients are at least so many operations
on floats (16 for masks alone, 21 for ALiBi). In the larger tile, which is faster for masks alone, registers spill:
ALiBi takes 0.322 instead of 0.258 ms on an H200."""


def schedule_attention(
    request: TileRequest, found: FusedAttention, known: SymbolTable, capabilities: Capabilities
) -> Attention:
    """Schedule a kernel that computes the attention ``found``.

    Tiles are those of the request if it names blocks; otherwise the default ones, cut down to the extents of rows and
    summed points, and so that no SM is idle.
    """

    def extent(axes: Sequence[Axis]) -> int:
        return known.hint(product(axis.size for axis in axes))

    model = capabilities.model
    default = _default_tile(found, extent(found.columns), extent(found.summed), model)
    if request.blocks:
        named = dict(request.blocks)
        given = (found.rows, found.columns, found.summed)
        y, x, r = (named_block(axes, named, MIN_TILE_SIZE) for axes in given)
        x = x if found.columns else 1
        warps, stages = request.warps, request.stages or default.stages
    else:
        y = _rows(default.rows, extent(found.rows), extent(found.batch), model.sm_count)
        x = _whole_tile(extent(found.columns)) if found.columns else 1
        r = max(MIN_TILE_SIZE, min(default.summed, next_power_of_two(extent(found.summed))))
        warps, stages = min(default.warps, max(_MIN_WARPS, default.warps * y // default.rows)), default.stages
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
        order=_order(found, extent(found.batch) * -(-extent(found.rows) // y), model.sm_count),
        descriptors=request.descriptors or default.descriptors,
    )


def _order(found: FusedAttention, tiles: int, sm_count: int) -> LaunchOrder:
    """Return the order in which rows with more summed points start first, for so many ``tiles``.

    A row sums the points of the blocks that its mask lists, of which the comparisons of positions in the mask tell
    whether later rows have more. Without a loop bound all rows have the same.
    """
    if found.loop_bound is None or not found.rows:
        return "batch"
    if not _is_forward(found) and tiles > _MAX_TILES_BY_ROWS * sm_count:
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


def _whole_tile(size: int) -> int:
    """Return the tile size that covers ``size`` columns, at most ``_MAX_COLUMNS``."""
    return min(_MAX_COLUMNS, max(MIN_TILE_SIZE, next_power_of_two(size)))


def _default_tile(found: FusedAttention, columns: int, points: int, model: DeviceModel) -> _Tile:
    """Return the default tile of an attention with these numbers of columns and summed points.

    Chips with clusters multiply operands in shared memory, which then need no registers.
    """
    size = max(64, _whole_tile(max(columns, found.head_dim)))
    if found.dtype.bits > 16:
        return (_EXACT if found.precision == "ieee" else _ROUNDED)[size]
    described = model.tensor_descriptors and points >= _DESCRIBED_POINTS and found.columns
    listed, pair = found.loop_bound is not None, len(found.statements) == 2
    if _is_forward(found):
        rule = _LISTED_WEIGHTS if listed else _WEIGHTS
        better = _DESCRIBED_LISTED_WEIGHTS if listed else _DESCRIBED_WEIGHTS
    elif pair and model.max_cluster_size > 1:
        rule, better = _PAIRS, _DESCRIBED_LISTED_PAIRS if listed else _DESCRIBED_PAIRS
        if described and listed and size == 64 and _operations(found) >= _LARGE_PAIR_OPERATIONS:
            return _LARGE_PAIR
    else:
        rule, better = _SUMS, _DESCRIBED_LISTED_SUMS if listed else _DESCRIBED_SUMS
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


def _rows(limit: int, rows: int, batch: int, sm_count: int) -> int:
    """Return the rows of a tile, at most ``limit``, for ``rows`` rows in each of ``batch`` batches."""
    y = min(limit, max(MIN_TILE_SIZE, next_power_of_two(rows)))
    while y > _MIN_TILE_ROWS and batch * -(-rows // y) < sm_count:
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
