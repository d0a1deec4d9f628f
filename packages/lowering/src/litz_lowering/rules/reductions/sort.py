"""Sorts of short rows, and small ``topk``, on GPUs, where a library launches several kernels for them.

Every element has a key, an integer whose order is eager's. Keys of a row are distinct, since the position is part
of them. On the CPU a library's sort is a single call, so it is used, and so it is for 64-bit values, whose keys
have no bits left for the position.

The shortest rows are ranked: each element is compared with every other, and again to find the element of each
rank, which takes 128 comparisons for each of 64 elements. Where the options ask for it, longer rows are sorted by
a scan with combiner ``sort``, a sorting network of log n (log n + 1) / 2 comparisons per element: 28 in rows of
128 and 66 in rows of 2,048. It launches one kernel for the sorted keys and one for values and positions; it has
not been timed against a library's sort. Few long rows are left to the library, because a thread block sorts one
row and most SMs would idle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from litz_ir.dtypes import DType, b1, bf16, f16, f32, i8, i16, i32, i64, u8
from litz_ir.loops import TensorType
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, product
from litz_lowering.aten.fallback_families import SORTS
from litz_lowering.contexts.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num
from litz_lowering.rules.indexing.view import dimension

_MAX_RANKED_ROW = 64
"""Longest row that is ranked. On an H200, 4,096 rows of 128 took twice as long as a library's sort, rows of 64
less than it."""

MAX_TOPK, MAX_TOPK_ROW = 8, 4096
"""Largest ``k`` of a ``topk`` by repeated search, and longest row for it."""

MIN_ROWS = 128
"""Fewest rows that are sorted by the network: about the number of SMs of the largest GPUs."""

_AS_INTEGERS: Mapping[DType, DType] = MappingProxyType({f32: i32, bf16: i16, f16: i16})
"""Float dtypes that are sorted, and integers of their width."""

_INTEGERS = frozenset({b1, u8, i8, i16, i32})


@dataclass(frozen=True, slots=True)
class _Keys:
    """Keys of a tensor's elements along a dimension; the first element in eager's order has the largest key.

    The upper half of a key's bits is the order of the value, the lower half distinguishes equal values by
    position.
    """

    x: Tensor
    dim: int
    size: int
    descending: bool

    @property
    def dtype(self) -> DType:
        """Dtype of keys: 32 bits for values of up to 16 bits, which a GPU compares in one step; 64 bits for
        others."""
        return i32 if self.x.dtype.bits <= 16 else i64

    @property
    def least(self) -> int:
        """Smallest value of the dtype, which is no key's."""
        return -(1 << self.dtype.bits - 1)

    @property
    def rows(self) -> Size:
        """Number of rows."""
        return product(size for position, size in enumerate(self.x.shape) if position != self.dim)

    def at(self, index: Axes) -> Num:
        """Key of an element."""
        half = self.dtype.bits // 2
        order = _order(Num(self.x.load(index)), self.dtype)
        if not self.descending:
            order = ~order
        position = (f.index(self.size - 1) - f.index(index[self.dim])).to(self.dtype)
        return Num(build.op("shift_left", order.expr, build.const(half, self.dtype))) | position

    def position(self, key: Num) -> Num:
        """Position along the dimension of the element that has a key."""
        half = self.dtype.bits // 2
        return f.index(self.size - 1) - (key & (1 << half) - 1).to(i64)

    def replaced(self, index: Axes, position: Size) -> Axes:
        """Index with another position along the dimension."""
        return (*index[: self.dim], position, *index[self.dim + 1 :])


def _order(value: Num, key: DType) -> Num:
    """Integer of half a key's bits in the order of the value; zeros are equal, NaN is above all."""
    if not value.dtype.is_float:
        return value.to(key)
    largest, wide = (1 << key.bits // 2 - 1) - 1, value.to(f32)
    bits = Num(build.op("bitcast", value.expr, dtype=_AS_INTEGERS[value.dtype])).to(key)
    signed = f.where(bits < 0, bits ^ largest, bits)
    return f.where(f.isnan(wide), largest, f.where(wide.eq(0.0), 0, signed))


def _keys(x: Tensor, dim: int, descending: bool, longest: int) -> _Keys | Declined:
    """Keys along a dimension of at most ``longest`` elements."""
    if x.rank == 0 or x.device.kind == "cpu" or not (x.dtype in _AS_INTEGERS or x.dtype in _INTEGERS):
        return Declined(SORTS, is_intended=True)
    position = dimension(dim, x.rank)
    size = x.shape[position]
    if not isinstance(size, int) or not 0 < size <= longest:
        return Declined(SORTS, is_intended=True)
    return _Keys(x, position, size, descending)


def _result_types(ctx: LoweringContext) -> tuple[TensorType, TensorType]:
    """Types of values and positions."""
    values, positions = ctx.outputs
    assert values is not None and positions is not None, "sort and topk return two tensors"
    return values, positions


def _network_sorted(ctx: LoweringContext, keys: _Keys) -> tuple[Tensor, Tensor] | Declined:
    """Sort by the network; the sorted keys contain the positions."""
    x, kinds = keys.x, _result_types(ctx)
    rows = keys.rows
    few = isinstance(rows, int) and rows < MIN_ROWS
    if keys.size > ctx.options.max_sorted_row or few:
        return Declined(SORTS, is_intended=True)
    kind = ctx.temporary(keys.dtype, x.shape, x.device)
    (ordered,) = ctx.scan("sort", lambda axes: keys.at(axes).expr, keys.dim, (kind,), ("keys",))
    positions = ctx.pointwise(lambda axes: keys.position(Num(ordered.load(axes))).expr, kinds[1], "1")
    return _gathered(ctx, keys, kinds[0], positions), positions


def _gathered(ctx: LoweringContext, keys: _Keys, kind: TensorType, positions: Tensor) -> Tensor:
    """Elements at positions."""

    def body(axes: Axes) -> Expr:
        at = ctx.indirect(positions.load(axes), keys.size, check="assumed")
        return keys.x.load(keys.replaced(axes, at))

    return ctx.pointwise(body, kind, "0")


@rule("aten.topk.default")
def topk(
    ctx: LoweringContext, x: Tensor, k: Size, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, Tensor] | Declined:
    """``k`` largest elements by key and their positions: the largest key, then the largest below it, and so on."""
    keys = _keys(x, dim, largest, MAX_TOPK_ROW)
    if isinstance(keys, Declined):
        return keys
    if not isinstance(k, int) or k < 1:
        return Declined(SORTS, is_intended=True)
    if k > MAX_TOPK:
        return _network_sorted(ctx, keys)
    best: list[Tensor] = []
    for number in range(k):
        body = _below(keys, best[-1]) if best else lambda index: keys.at(index).expr
        best.append(
            ctx.reduce("max", x, (keys.dim,), keys.dtype, body=body, keepdim=True, name=f"best{number}")
        )

    def position(axes: Axes) -> Expr:
        own = [Num(each.load(keys.replaced(axes, 0))) for each in best]
        chosen = own[-1]
        for number in reversed(range(k - 1)):
            chosen = f.where(f.index(axes[keys.dim]).eq(number), own[number], chosen)
        return keys.position(chosen).expr

    kinds = _result_types(ctx)
    positions = ctx.pointwise(position, kinds[1], "1")
    return _gathered(ctx, keys, kinds[0], positions), positions


def _below(keys: _Keys, last: Tensor) -> Callable[[Axes], Expr]:
    """Keys smaller than the last one found; the smallest integer for others."""

    def body(index: Axes) -> Expr:
        key = keys.at(index)
        return f.where(key < Num(last.load(keys.replaced(index, 0))), key, keys.least).expr

    return body


def _sorted(ctx: LoweringContext, x: Tensor, dim: int, descending: bool) -> tuple[Tensor, Tensor] | Declined:
    """Sort all elements; returns values and positions."""
    keys = _keys(x, dim, descending, max(_MAX_RANKED_ROW, ctx.options.max_sorted_row))
    if isinstance(keys, Declined):
        return keys
    return _ranked(ctx, keys) if keys.size <= _MAX_RANKED_ROW else _network_sorted(ctx, keys)


def _ranked(ctx: LoweringContext, keys: _Keys) -> tuple[Tensor, Tensor]:
    """Sort by rank: an element's rank is the number of larger keys in its row."""
    x, kinds = keys.x, _result_types(ctx)
    kind = ctx.temporary(i32, x.shape, x.device)

    def above(outer: Axes, inner: Axes) -> Expr:
        return (keys.at(keys.replaced(outer, inner[0])) > keys.at(outer)).to(i32).expr

    (rank,) = ctx.reduction("sum", above, (keys.size,), (kind,), ("rank",))

    def holder(outer: Axes, inner: Axes) -> Expr:
        here = Num(rank.load(keys.replaced(outer, inner[0]))).to(i64).eq(f.index(outer[keys.dim]))
        return f.where(here, f.index(inner[0]), 0).expr

    (positions,) = ctx.reduction("sum", holder, (keys.size,), (kinds[1],), ("1",))
    return _gathered(ctx, keys, kinds[0], positions), positions


@rule("aten.sort.default")
def sort(
    ctx: LoweringContext, x: Tensor, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor] | Declined:
    """Sorted values and their positions; the sort is stable."""
    return _sorted(ctx, x, dim, descending)


@rule("aten.sort.stable")
def sort_stable(
    ctx: LoweringContext, x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor] | Declined:
    """Sorted values and their positions; the sort is stable."""
    return _sorted(ctx, x, dim, descending)
