"""Sorts of short rows, and the first few of longer ones, on GPUs: a library launches several kernels for them.

Every element has a key, an integer that orders the elements as eager does and no two of a row share, since its place
is part of it. On the CPU, where a library's sort is a call and no more, they are left to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from litz_ir.dtypes import f32, i32, i64, u32
from litz_ir.loops.nodes import TensorType
from litz_ir.scalar import build
from litz_ir.scalar.expr import Expr
from litz_ir.symbols.term import Size
from litz_lowering.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.left_to_aten import SORTS
from litz_lowering.registry import rule
from litz_lowering.rules import formula as f
from litz_lowering.rules.formula import Num
from litz_lowering.rules.view import dimension

MOST_RANKED = 128
"""The longest row that is sorted by comparing each of its elements with every other."""

MOST_TAKEN, MOST_SEARCHED = 8, 4096
"""How many elements are taken from a row, by a search for each, and how long that row may be."""

_LARGEST = 2**31 - 1
_PLACES = 2**32 - 1
_NOTHING = -(2**63)


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys of a tensor's elements along a dimension: the first in eager's order has the largest one."""

    x: Tensor
    dim: int
    size: int
    descending: bool

    def at(self, index: Axes) -> Num:
        """The key of an element: 32 bits that its value decides, then 32 that tell equal values apart."""
        order = _order(Num(self.x.load(index)))
        if not self.descending:
            order = ~order
        place = f.index(self.size - 1) - f.index(index[self.dim])
        return Num(build.op("shift_left", order.expr, build.const(32, i64))) | place

    def place(self, key: Num) -> Num:
        """The place along the dimension of the element that has a key."""
        return f.index(self.size - 1) - (key & _PLACES)

    def beside(self, index: Axes, place: Size) -> Axes:
        """An index with another place along the dimension."""
        return (*index[: self.dim], place, *index[self.dim + 1 :])


def _order(value: Num) -> Num:
    """A value as an ``i64`` of 32 bits in the same order; both zeros are equal, NaN is above all."""
    if not value.dtype.is_float:
        return value.to(i64)
    wide = value.to(f32)
    bits = Num(build.op("bitcast", f.where(wide.eq(0.0), 0.0, wide).expr, dtype=i32))
    flipped = bits ^ _LARGEST
    return f.where(f.isnan(wide), _LARGEST, f.where(bits < 0, flipped, bits)).to(i64)


def _keys(x: Tensor, dim: int, descending: bool, longest: int) -> _Keys | Declined:
    """The keys along a dimension of at most ``longest`` elements."""
    if x.rank == 0 or x.device.kind == "cpu" or x.dtype == u32 or x.dtype.bits > 32:
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
    if not isinstance(k, int) or not 0 < k <= MOST_TAKEN:
        return Declined(SORTS, is_meant=True)
    found: list[Tensor] = []
    for number in range(k):
        body = _below(keys, found[-1]) if found else lambda index: keys.at(index).expr
        found.append(ctx.reduce("max", x, (keys.dim,), i64, body=body, keepdim=True, name=f"best{number}"))

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
        return f.where(key < Num(last.load(keys.beside(index, 0))), key, _NOTHING).expr

    return body


def _sorted(ctx: LoweringContext, x: Tensor, dim: int, descending: bool) -> tuple[Tensor, Tensor] | Declined:
    """All in order and where they were: an element's rank is the number of keys above its own."""
    keys = _keys(x, dim, descending, MOST_RANKED)
    if isinstance(keys, Declined):
        return keys
    kinds = _kinds(ctx)
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
