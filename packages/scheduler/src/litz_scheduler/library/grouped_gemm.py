"""Products of groups of rows with a matrix each, as loops over tiles of rows that lie in one group."""

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
from litz_scheduler.cost import estimate

TILE_ROWS = (16, 128)
"""The fewest and the most rows that a tile of a group has."""


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Where the rows of groups are found, which end at ``offsets``, and where rows are found among those of all tiles.

    Tiles have ``block`` rows. Those of group ``g`` begin with the tile ``start[g] // block + g``: no group needs more
    tiles than lie before the next one's first, whatever the sizes of the others, so that nothing has to be added up. A
    tile may reach into the next group, or lie behind the last one: what it computes there nobody reads. Rows are
    counted in i32, as offsets do.
    """

    matmul: ContractionCall
    offsets: Value
    count: int
    rows: Size
    block: int

    @property
    def tiles(self) -> Size:
        """How many tiles there may be."""
        return add(floordiv(self.rows, self.block), self.count)

    def named(self, name: str, dtype: DType, *shape: Size) -> Value:
        """A value of the product's own."""
        device = self.matmul.results[0].type.device
        return Value(f"{self.matmul.name}.{name}", tensor_type(dtype, *shape, device=device))

    def operations(self) -> tuple[Operation, ...]:
        """The loops that find the group of each tile, its first row, and the place of each row.

        All is said of the last group that has begun where a tile or a row is. It is the one with the largest number,
        the smallest first row for a tile, and the largest place for a row.
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
                "place", "max", self.rows, where(op("le", start, at), op("add", at, skipped), nowhere)
            ),
        )

    def _start(self) -> Operation:
        """The loop that finds the first row of each group."""
        group = symbol("i0")
        before = Load(self.offsets.name, (add(group, -1),), i32)
        body = masked(op("gt", index(group), const(0, i64)), before, const(0, i32))
        value, axes = self.named("start", i32, self.count), (Axis("i0", self.count),)
        return Pointwise(results=(value,), axes=axes, bodies=(body,), origin=self.matmul.origin)

    def _over_groups(self, name: str, kind: ReductionName, size: Size, body: Expr) -> Operation:
        return Reduction(
            results=(self.named(name, i32, size),), axes=(Axis("i0", size),), combiner=NamedCombiner(kind),
            reduce_axes=(Axis("r0", self.count),), bodies=(body,), origin=self.matmul.origin,
        )  # fmt: skip


def _number(at: Size) -> Expr:
    return cast(index(at), i32)


def row_groups_of(product: ContractionCall, call: MatmulCall, symbols: SymbolTable) -> RowGroups | None:
    """The groups of a product whose rows are grouped; ``None`` where it has no two of them, or it is not known how
    many."""
    count, rows = call.b.type.shape[0], call.a.type.shape[0]
    if call.offsets is None or not isinstance(count, int) or count < 2:
        return None
    each = max(1, estimate(rows, symbols) // count)
    least, most = TILE_ROWS
    return RowGroups(product, call.offsets, count, rows, min(most, max(least, 1 << (each - 1).bit_length())))


def grouped_gemm_loops(groups: RowGroups, call: MatmulCall, multiply: str) -> tuple[Operation, ...]:
    """The loops of a product of groups of rows: sums for the rows of all tiles, rounded, then each row of them."""
    product, name = groups.matmul, groups.matmul.name
    result = call.result
    columns = result.type.shape[-1]
    tile, within, column = (symbol(f"i{k}") for k in range(3))
    k = Axis("r0", call.a.type.shape[-1])
    row = op("add", Load(f"{name}.row", (tile,), i32), _number(within))
    taken = Indirect(row, groups.rows, check="clamped")
    own = Indirect(Load(f"{name}.group", (tile,), i32), groups.count, check="clamped")
    left = Load(call.a.name, (taken, symbol(k.name)), call.a.type.dtype)
    right = Load(call.b.name, (own, symbol(k.name), column), call.b.type.dtype)
    body = op(multiply, cast(left, call.accumulator), cast(right, call.accumulator))
    axes = _axes((groups.tiles, groups.block, columns))
    total, rounded = (
        groups.named(each, dtype, *(axis.size for axis in axes))
        for each, dtype in (("sum", call.accumulator), ("tiles", result.type.dtype))
    )
    made: Expr = Load(total.name, (tile, within, column), call.accumulator)
    for scale, at in zip(call.epilogue.scales, ((taken,), (own, column))):
        made = op("mul", made, Load(scale.name, at, scale.type.dtype))
    slots = mul(groups.tiles, groups.block)
    place = Indirect(Load(f"{name}.place", (symbol("i0"),), i32), slots, check="clamped")
    slot = (floordiv(place, groups.block), mod(place, groups.block))
    found = Load(rounded.name, (*slot, symbol("i1")), result.type.dtype)
    return (
        *groups.operations(),
        Reduction(
            results=(total,), axes=axes, reduce_axes=(k,), combiner=NamedCombiner("sum"), bodies=(body,),
            origin=product.origin,
        ),
        Pointwise(results=(rounded,), axes=axes, bodies=(cast(made, result.type.dtype),), origin=product.origin),
        Pointwise(
            results=product.results, axes=_axes(result.type.shape), bodies=(found,), origin=product.origin
        ),
    )  # fmt: skip


def _axes(shape: Sequence[Size]) -> tuple[Axis, ...]:
    return tuple(Axis(f"i{k}", size) for k, size in enumerate(shape))
