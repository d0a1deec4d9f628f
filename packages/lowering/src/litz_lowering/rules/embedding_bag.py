"""Bags of embeddings: rows of a table, chosen by indices, summed or averaged over runs that start at ``offsets``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from litz_ir.dtypes import DType, b1, compute_dtype, i64
from litz_ir.scalar import build
from litz_ir.scalar.expr import Expr
from litz_ir.symbols.term import Size, add, floordiv, mul
from litz_lowering.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.registry import rule
from litz_lowering.rules import formula as f
from litz_lowering.rules.formula import Num
from litz_lowering.rules.known_index import stair_of
from litz_lowering.rules.scatter import zeros

SUM, MEAN = 0, 1
_LARGEST = "the largest of a bag, whose place is wanted too"
_FREQUENCY = "eager scales by the frequencies of sorted indices, not each by its own"


@dataclass(frozen=True, slots=True)
class _Bags:
    """To which of ``count`` bags each index belongs: ``width`` to each, or else as ``running`` counts bags begun."""

    ctx: LoweringContext
    indices: Tensor
    count: Size
    padding: int
    width: int | None
    running: Tensor | None

    def bag(self, j: Size) -> Size:
        """The bag of index ``j``."""
        if self.running is None:
            assert self.width is not None, "bags are of one width, or counted"
            return floordiv(j, self.width)
        begun = build.op("sub", self.running.load((j,)), build.const(1, i64))
        return self.ctx.indirect(begun, self.count, check="assumed")

    def counts(self, j: Size) -> Expr:
        """Whether index ``j`` is not the padding."""
        if self.padding < 0:
            return build.const(True, b1)
        return build.op("ne", self.indices.load((j,)), build.const(self.padding, self.indices.dtype))

    def row(self, table: Tensor, j: Size, column: Size) -> Expr:
        """The element of the table's row that index ``j`` chooses, as sums of such are computed."""
        place = self.ctx.indirect(self.indices.load((j,)), table.shape[0], fault="element")
        return build.cast(table.load((place, column)), compute_dtype(table.dtype))

    def total(self, weigh: Any, dtype: DType, name: str, columns: Size) -> Tensor:
        """The sum over each bag of ``weigh(j, column)`` of what is no padding, an intermediate of ``dtype``."""
        kind = self.ctx.temporary(dtype, (self.count, columns))

        def term(j: Size, column: Size) -> Expr:
            return build.masked(self.counts(j), weigh(j, column), build.const(0, dtype))

        if self.width is not None:
            width = self.width

            def body(point: Axes, inner: Axes) -> Expr:
                return term(add(mul(point[0], width), inner[0]), point[1])

            return self.ctx.reduction("sum", body, (width,), (kind,), (name,))[0]
        over = (self.indices.shape[0], columns)
        blank = zeros(self.ctx, kind)
        return self.ctx.scatter(
            blank, over, lambda point: (self.bag(point[0]), point[1]), lambda point: term(*point),
            mode="add", type=kind, name=name,
        )  # fmt: skip


def _bags(ctx: LoweringContext, indices: Tensor, offsets: Tensor, count: Size, padding: int) -> _Bags:
    """The bags that begin at the first ``count`` of ``offsets``, the first of which has to be 0."""
    number = indices.shape[0]
    known = stair_of(ctx.builder, offsets, number)
    stair = None if known is None else known[0]
    if stair is not None and offsets.shape[0] == count and number == mul(count, stair.slope):
        if stair.divisor == 1 and stair.offset == 0 and stair.low is None and stair.high is None:
            return _Bags(ctx, indices, count, padding, stair.slope, None)
    if count != 0:
        alone = ctx.temporary(offsets.dtype, ())
        first = build.cast(ctx.view(offsets, lambda axes: (0,), alone, name="first").load(()), i64)
        ctx.check(build.op("eq", first, build.const(0, i64)), "offsets[0] has to be 0")
    kind = ctx.temporary(i64, (add(number, 1),))
    begun = ctx.scatter(
        zeros(ctx, kind), (count,), lambda at: (ctx.indirect(offsets.load(at), kind.shape[0]),),
        lambda at: build.const(1, i64), mode="add", type=kind, name="begun",
    )  # fmt: skip
    running = ctx.scan("sum", begun.load, 0, (kind,), ("running",))[0]
    return _Bags(ctx, indices, count, padding, None, running)


@rule("aten._embedding_bag.default", "aten._embedding_bag_forward_only.default")
def embedding_bag(
    ctx: LoweringContext,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, ...] | Declined:
    """(sum or mean of each bag, the bag of each index, the sizes of the bags, a copy of these).

    The later ones are there for the backward; eager leaves those out that it can do without.
    """
    result, places, sizes, largest = ctx.outputs
    assert result is not None and places is not None and sizes is not None and largest is not None
    if mode not in (SUM, MEAN):
        return Declined(_LARGEST)
    wide = compute_dtype(weight.dtype)
    bags = _bags(ctx, indices, offsets, result.shape[0], padding_idx)

    def weigh(j: Size, column: Size) -> Expr:
        value = bags.row(weight, j, column)
        if per_sample_weights is None:
            return value
        return build.op("mul", value, build.cast(per_sample_weights.load((j,)), wide))

    total = bags.total(weigh, wide, "total", weight.shape[1])
    counted = bags.total(lambda j, column: build.const(1, i64), i64, "counted", 1)

    def mean(axes: Axes) -> Expr:
        value = Num(total.load(axes))
        size = Num(counted.load((axes[0], 0)))
        return (value / f.maximum(size, 1).to(wide)).expr if mode == MEAN else value.expr

    fast = places.shape[0] == 0

    def size_of(axes: Axes) -> Expr:
        # Eager's sizes have an entry for the last offset too.
        inside = build.op("lt", build.index(axes[0]), build.index(bags.count))
        nothing = build.const(0, i64)
        return nothing if fast else build.masked(inside, counted.load((axes[0], 0)), nothing)

    return (
        ctx.pointwise(mean, result, "0"),
        ctx.pointwise(
            lambda axes: build.const(0, i64) if fast else build.index(bags.bag(axes[0])), places, "1"
        ),
        ctx.pointwise(size_of, sizes, "2"),
        ctx.pointwise(size_of, largest, "3"),
    )


@rule("aten._embedding_bag_backward.default")
def embedding_bag_backward(
    ctx: LoweringContext,
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: Size,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor | Declined:
    """Every bag's gradient added to the rows that it was made of."""
    if mode not in (SUM, MEAN):
        return Declined(_LARGEST)
    if sparse or scale_grad_by_freq:
        return Declined("a sparse gradient" if sparse else _FREQUENCY)
    wide = compute_dtype(grad.dtype)
    bags = _bags(ctx, indices, offsets, grad.shape[0], padding_idx)

    def row(j: Size) -> Size:
        return ctx.indirect(indices.load((j,)), num_weights)

    def body(point: Axes) -> Expr:
        j, column = point
        bag = bags.bag(j)
        value = Num(build.cast(grad.load((bag, column)), wide))
        if per_sample_weights is not None:
            value = value * Num(build.cast(per_sample_weights.load((j,)), wide))
        if mode == MEAN:
            value = value / f.maximum(Num(bag_size.load((bag,))), 1).to(wide)
        return build.masked(bags.counts(j), value.expr, build.const(0, wide))

    kind = ctx.temporary(wide, ctx.output.shape)
    over = (indices.shape[0], grad.shape[1])
    total = ctx.scatter(
        zeros(ctx, kind),
        over,
        lambda point: (row(point[0]), point[1]),
        body,
        mode="add",
        type=kind,
        name="total",
    )
    return ctx.pointwise(total.load)


@rule("aten._embedding_bag_per_sample_weights_backward.default")
def per_sample_weights_backward(
    ctx: LoweringContext,
    grad: Tensor,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    mode: int,
    padding_idx: int = -1,
) -> Tensor:
    """The product of each index's row with the gradient of its bag."""
    wide = compute_dtype(grad.dtype)
    bags = _bags(ctx, indices, offsets, grad.shape[0], padding_idx)

    def body(point: Axes, inner: Axes) -> Expr:
        (j,), (column,) = point, inner
        share = build.cast(grad.load((bags.bag(j), column)), wide)
        product = build.op("mul", share, bags.row(weight, j, column))
        return build.masked(bags.counts(j), product, build.const(0, wide))

    kind = ctx.temporary(wide, ctx.output.shape)
    total = ctx.reduction("sum", body, (grad.shape[1],), (kind,), ("total",))[0]
    return ctx.pointwise(total.load)
