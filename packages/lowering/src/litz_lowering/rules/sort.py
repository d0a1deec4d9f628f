"""Sorts of short rows, and the first few of longer ones, on GPUs: a library launches several kernels for them.

Every element has a key, an integer that orders the elements as eager does and no two of a row share, since its place
is part of it. On the CPU, where a library's sort is a call and no more, they are left to it, and so are values of 64
bits, which leave a key no room for a place.

The shortest rows are sorted by comparing all with all, a comparison of each element with every other and another to
find who has a rank: 128 for each of 64. Where the options ask for it, longer ones are sorted by a scan that has its
axis in order, by a network: log n (log n + 1) / 2 comparisons of each element, 28 in rows of 128 and 66 in rows of
2,048. That takes a launch for the keys in order and one for values and places; it has not been timed beside a
library's sort. Few long rows stay a library's: a row is one program's, and most processors would have none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from litz_ir.dtypes import DType, b1, bf16, f16, f32, i8, i16, i32, i64, u8
from litz_ir.loops import TensorType
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, product
from litz_lowering.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.fallback_families import SORTS
from litz_lowering.registry import rule
from litz_lowering.rules import formula as f
from litz_lowering.rules.formula import Num
from litz_lowering.rules.view import dimension

MOST_RANKED = 64
"""The longest row that is sorted by comparing each of its elements with every other. On an H200 4,096 rows of 128 took
twice as long as a library's sort, rows of 64 less."""

MOST_TAKEN, MOST_SEARCHED = 8, 4096
"""How many elements are taken from a row, by a search for each, and how long that row may be."""

FEWEST_ROWS = 128
"""Rows that leave no processor of a GPU without one, about as many as the largest have."""

_AS_INTEGERS: Mapping[DType, DType] = MappingProxyType({f32: i32, bf16: i16, f16: i16})
"""Floats that are sorted, and integers of their width."""

_WHOLE = frozenset({b1, u8, i8, i16, i32})


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys of a tensor's elements along a dimension: the first in eager's order has the largest one.

    Half of a key's bits are what the value decides, half tell equal values apart.
    """

    x: Tensor
    dim: int
    size: int
    descending: bool

    @property
    def dtype(self) -> DType:
        """Keys of values of 16 bits have 32, which a GPU compares in one step; others have 64."""
        return i32 if self.x.dtype.bits <= 16 else i64

    @property
    def least(self) -> int:
        """No key is smaller."""
        return -(1 << self.dtype.bits - 1)

    @property
    def rows(self) -> Size:
        """How many rows there are."""
        return product(size for place, size in enumerate(self.x.shape) if place != self.dim)

    def at(self, index: Axes) -> Num:
        """The key of an element."""
        half = self.dtype.bits // 2
        order = _order(Num(self.x.load(index)), self.dtype)
        if not self.descending:
            order = ~order
        place = (f.index(self.size - 1) - f.index(index[self.dim])).to(self.dtype)
        return Num(build.op("shift_left", order.expr, build.const(half, self.dtype))) | place

    def place(self, key: Num) -> Num:
        """The place along the dimension of the element that has a key."""
        half = self.dtype.bits // 2
        return f.index(self.size - 1) - (key & (1 << half) - 1).to(i64)

    def beside(self, index: Axes, place: Size) -> Axes:
        """An index with another place along the dimension."""
        return (*index[: self.dim], place, *index[self.dim + 1 :])


def _order(value: Num, key: DType) -> Num:
    """A value as an integer of half a key's bits in the same order; both zeros are equal, NaN is above all."""
    if not value.dtype.is_float:
        return value.to(key)
    largest, wide = (1 << key.bits // 2 - 1) - 1, value.to(f32)
    bits = Num(build.op("bitcast", value.expr, dtype=_AS_INTEGERS[value.dtype])).to(key)
    signed = f.where(bits < 0, bits ^ largest, bits)
    return f.where(f.isnan(wide), largest, f.where(wide.eq(0.0), 0, signed))


def _keys(x: Tensor, dim: int, descending: bool, longest: int) -> _Keys | Declined:
    """The keys along a dimension of at most ``longest`` elements."""
    if x.rank == 0 or x.device.kind == "cpu" or not (x.dtype in _AS_INTEGERS or x.dtype in _WHOLE):
        return Declined(SORTS, is_meant=True)
    place = dimension(dim, x.rank)
    size = x.shape[place]
    if not isinstance(size, int) or not 0 < size <= longest:
        return Declined(SORTS, is_meant=True)
    return _Keys(x, place, size, descending)


def _kinds(ctx: LoweringContext) -> tuple[TensorType, TensorType]:
    """The types of values and places."""
    values, places = ctx.outputs
    assert values is not None and places is not None, "both are tensors"
    return values, places


def _in_order(ctx: LoweringContext, keys: _Keys) -> tuple[Tensor, Tensor] | Declined:
    """As many as are wanted, in order, and where they were: keys that a scan sorts know their places."""
    x, kinds = keys.x, _kinds(ctx)
    rows = keys.rows
    few = isinstance(rows, int) and rows < FEWEST_ROWS
    if keys.size > ctx.options.max_sorted_row or few:
        return Declined(SORTS, is_meant=True)
    kind = ctx.temporary(keys.dtype, x.shape, x.device)
    (ordered,) = ctx.scan("sort", lambda axes: keys.at(axes).expr, keys.dim, (kind,), ("keys",))
    places = ctx.pointwise(lambda axes: keys.place(Num(ordered.load(axes))).expr, kinds[1], "1")
    return _found(ctx, keys, kinds[0], places), places


def _found(ctx: LoweringContext, keys: _Keys, kind: TensorType, places: Tensor) -> Tensor:
    """The elements at places."""

    def body(axes: Axes) -> Expr:
        there = ctx.indirect(places.load(axes), keys.size, check="assumed")
        return keys.x.load(keys.beside(axes, there))

    return ctx.pointwise(body, kind, "0")


@rule("aten.topk.default")
def topk(
    ctx: LoweringContext, x: Tensor, k: Size, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, Tensor] | Declined:
    """The first ``k`` in order and where they are: the largest key, then the largest below it, and so on."""
    keys = _keys(x, dim, largest, MOST_SEARCHED)
    if isinstance(keys, Declined):
        return keys
    if not isinstance(k, int) or k < 1:
        return Declined(SORTS, is_meant=True)
    if k > MOST_TAKEN:
        return _in_order(ctx, keys)
    found: list[Tensor] = []
    for number in range(k):
        body = _below(keys, found[-1]) if found else lambda index: keys.at(index).expr
        found.append(
            ctx.reduce("max", x, (keys.dim,), keys.dtype, body=body, keepdim=True, name=f"best{number}")
        )

    def place(axes: Axes) -> Expr:
        own = [Num(each.load(keys.beside(axes, 0))) for each in found]
        chosen = own[-1]
        for number in reversed(range(k - 1)):
            chosen = f.where(f.index(axes[keys.dim]).eq(number), own[number], chosen)
        return keys.place(chosen).expr

    kinds = _kinds(ctx)
    places = ctx.pointwise(place, kinds[1], "1")
    return _found(ctx, keys, kinds[0], places), places


def _below(keys: _Keys, last: Tensor) -> Callable[[Axes], Expr]:
    """The keys that are smaller than the last one found."""

    def body(index: Axes) -> Expr:
        key = keys.at(index)
        return f.where(key < Num(last.load(keys.beside(index, 0))), key, keys.least).expr

    return body


def _sorted(ctx: LoweringContext, x: Tensor, dim: int, descending: bool) -> tuple[Tensor, Tensor] | Declined:
    """All in order and where they were."""
    keys = _keys(x, dim, descending, max(MOST_RANKED, ctx.options.max_sorted_row))
    if isinstance(keys, Declined):
        return keys
    return _ranked(ctx, keys) if keys.size <= MOST_RANKED else _in_order(ctx, keys)


def _ranked(ctx: LoweringContext, keys: _Keys) -> tuple[Tensor, Tensor]:
    """All in order and where they were: an element's rank is the number of keys above its own."""
    x, kinds = keys.x, _kinds(ctx)
    kind = ctx.temporary(i32, x.shape, x.device)

    def above(outer: Axes, inner: Axes) -> Expr:
        return (keys.at(keys.beside(outer, inner[0])) > keys.at(outer)).to(i32).expr

    (rank,) = ctx.reduction("sum", above, (keys.size,), (kind,), ("rank",))

    def holder(outer: Axes, inner: Axes) -> Expr:
        here = Num(rank.load(keys.beside(outer, inner[0]))).to(i64).eq(f.index(outer[keys.dim]))
        return f.where(here, f.index(inner[0]), 0).expr

    (places,) = ctx.reduction("sum", holder, (keys.size,), (kinds[1],), ("1",))
    return _found(ctx, keys, kinds[0], places), places


@rule("aten.sort.default")
def sort(
    ctx: LoweringContext, x: Tensor, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor] | Declined:
    """Sorted values and their places; equal ones stay in order."""
    return _sorted(ctx, x, dim, descending)


@rule("aten.sort.stable")
def sort_stable(
    ctx: LoweringContext, x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor] | Declined:
    """Sorted values and their places; equal ones stay in order."""
    return _sorted(ctx, x, dim, descending)
