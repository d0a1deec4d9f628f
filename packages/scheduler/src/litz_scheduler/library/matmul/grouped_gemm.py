"""Grouped GEMM as loops over tiles of rows, where each tile belongs to one group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from litz_ir.contraction import MatmulCall
from litz_ir.dtypes import DType, i32, i64
from litz_ir.loops import (
    Axis,
    ContractionCall,
    NamedCombiner,
    Operation,
    Pointwise,
    Reduction,
    ReductionName,
    Value,
    tensor_type,
)
from litz_ir.scalar import Expr, Indirect, Load, cast, const, index, masked, op, where
from litz_ir.symbols import Size, SymbolTable, add, floordiv, mod, mul, symbol
from litz_scheduler.analysis.cost import estimate, next_power_of_two

_TILE_ROWS = (16, 128)
"""The smallest and the largest number of rows in a tile."""


@dataclass(frozen=True, slots=True)
class RowGroups:
    """The rows of a grouped GEMM, and the tiles that they are computed in.

    The first tile of group ``g`` is ``start[g] // block + g``, with ``start[g]`` its first row. Between it and the
    first tile of the next group lie enough tiles for its rows whatever the sizes of the groups, so that no prefix sum
    is needed. A tile may extend into the next group or lie after the last one; such rows are computed and not read.
    Rows are counted in i32, as in ``offsets``.
    """

    matmul: ContractionCall
    """The call of the grouped GEMM."""
    offsets: Value
    """The end of each group of rows, i32, of shape (groups,)."""
    count: int
    """The number of groups."""
    rows: Size
    """The number of rows in all groups."""
    block: int
    """Rows in a tile, a power of two."""

    @property
    def tiles(self) -> Size:
        """An upper bound on the number of tiles."""
        return add(floordiv(self.rows, self.block), self.count)

    def value(self, name: str, dtype: DType, *shape: Size) -> Value:
        """Return a temporary of the call, named ``call.name``, on its device."""
        device = self.matmul.results[0].type.device
        return Value(f"{self.matmul.name}.{name}", tensor_type(dtype, *shape, device=device))

    def operations(self) -> tuple[Operation, ...]:
        """Return the loops that find the group and first row of each tile, and the row of the tiles for each row.

        Each takes the last group that starts at or before a tile or row. This group has the largest number, the
        smallest first row of a tile, and the largest row among the tiles, so that maxima and minima find it.
        """
        group, at = symbol("r0"), _number(symbol("i0"))
        start = Load(f"{self.matmul.name}.start", (group,), i32)
        number, block = _number(group), const(self.block, i32)
        first = op("add", op("shift_right", start, const(self.block.bit_length() - 1, i32)), number)
        here = op("add", start, op("mul", op("sub", at, first), block))
        begun = op("le", first, at)
        skipped = op("sub", op("mul", number, block), op("bit_and", start, const(self.block - 1, i32)))
        nowhere, last = const(0, i32), const(2**31 - 1, i32)
        return (
            self._start(),
            self._over_groups("group", "max", self.tiles, where(begun, number, nowhere)),
            self._over_groups("row", "min", self.tiles, where(begun, here, last)),
            self._over_groups(
                "tile_row", "max", self.rows, where(op("le", start, at), op("add", at, skipped), nowhere)
            ),
        )

    def _start(self) -> Operation:
        """Return the loop that finds the first row of each group."""
        group = symbol("i0")
        before = Load(self.offsets.name, (add(group, -1),), i32)
        body = masked(op("gt", index(group), const(0, i64)), before, const(0, i32))
        value, axes = self.value("start", i32, self.count), (Axis("i0", self.count),)
        return Pointwise(results=(value,), axes=axes, bodies=(body,), origin=self.matmul.origin)

    def _over_groups(self, name: str, kind: ReductionName, size: Size, body: Expr) -> Operation:
        return Reduction(
            results=(self.value(name, i32, size),), axes=(Axis("i0", size),), combiner=NamedCombiner(kind),
            reduce_axes=(Axis("r0", self.count),), bodies=(body,), origin=self.matmul.origin,
        )  # fmt: skip


def _number(at: Size) -> Expr:
    return cast(index(at), i32)


def row_groups_of(matmul: ContractionCall, call: MatmulCall, symbols: SymbolTable) -> RowGroups | None:
    """Return the row groups of a grouped GEMM; ``None`` for fewer than two groups or an unknown number of them.

    A tile has the mean number of rows in a group, rounded up to a power of two and bounded by ``_TILE_ROWS``.
    """
    count, rows = call.b.type.shape[0], call.a.type.shape[0]
    if call.offsets is None or not isinstance(count, int) or count < 2:
        return None
    rows_per_group = max(1, estimate(rows, symbols) // count)
    least, greatest = _TILE_ROWS
    block = min(greatest, max(least, next_power_of_two(rows_per_group)))
    return RowGroups(matmul, call.offsets, count, rows, block)


def grouped_gemm_loops(groups: RowGroups, call: MatmulCall, multiply: str) -> tuple[Operation, ...]:
    """Return the loops of a grouped GEMM: the sums of all tiles, rounded, and the gather of rows from the tiles."""
    matmul, name = groups.matmul, groups.matmul.name
    result = call.result
    columns = result.type.shape[-1]
    tile, within, column = (symbol(f"i{k}") for k in range(3))
    k = Axis("r0", call.a.type.shape[-1])
    row_number = op("add", Load(f"{name}.row", (tile,), i32), _number(within))
    row = Indirect(row_number, groups.rows, check="clamped")
    group = Indirect(Load(f"{name}.group", (tile,), i32), groups.count, check="clamped")
    a = Load(call.a.name, (row, symbol(k.name)), call.a.type.dtype)
    b = Load(call.b.name, (group, symbol(k.name), column), call.b.type.dtype)
    body = op(multiply, cast(a, call.accumulator), cast(b, call.accumulator))
    axes = _axes((groups.tiles, groups.block, columns))
    total, rounded = (
        groups.value(each, dtype, *(axis.size for axis in axes))
        for each, dtype in (("sum", call.accumulator), ("tiles", result.type.dtype))
    )
    scaled: Expr = Load(total.name, (tile, within, column), call.accumulator)
    for scale, at in zip(call.epilogue.scales, ((row,), (group, column))):
        scaled = op("mul", scaled, Load(scale.name, at, scale.type.dtype))
    slots = mul(groups.tiles, groups.block)
    tile_row = Indirect(Load(f"{name}.tile_row", (symbol("i0"),), i32), slots, check="clamped")
    slot = (floordiv(tile_row, groups.block), mod(tile_row, groups.block))
    element = Load(rounded.name, (*slot, symbol("i1")), result.type.dtype)
    return (
        *groups.operations(),
        Reduction(
            results=(total,), axes=axes, reduce_axes=(k,), combiner=NamedCombiner("sum"), bodies=(body,),
            origin=matmul.origin,
        ),
        Pointwise(results=(rounded,), axes=axes, bodies=(cast(scaled, result.type.dtype),), origin=matmul.origin),
        Pointwise(
            results=matmul.results, axes=_axes(result.type.shape), bodies=(element,), origin=matmul.origin
        ),
    )  # fmt: skip


def _axes(shape: Sequence[Size]) -> tuple[Axis, ...]:
    return tuple(Axis(f"i{k}", size) for k, size in enumerate(shape))
