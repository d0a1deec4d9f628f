"""Embedding bags: sum, mean or maximum over groups of rows of a table, which ``offsets`` delimit.

The maximum is the first of equal elements. A NaN counts only at the start of a bag, since eager starts with the
first element and tests whether the next is larger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from litz_ir.dtypes import DType, b1, compute_dtype, i64
from litz_ir.loops import ReductionName, ScatterMode, TensorType
from litz_ir.scalar import BoundsCheck, Expr, build
from litz_ir.symbols import Size, add, floordiv, mul
from litz_lowering.contexts.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num, extreme
from litz_lowering.rules.indexing.index_put import occurrences
from litz_lowering.rules.indexing.known_index import stair_of
from litz_lowering.rules.indexing.scatter import identity, zeros

SUM, MEAN, MAX = 0, 1, 2
_REDUCTIONS: dict[ScatterMode, ReductionName] = {"add": "sum", "max": "max", "min": "min"}


@dataclass(frozen=True, slots=True)
class _Bags:
    """Assignment of indices to ``count`` bags."""

    ctx: LoweringContext
    indices: Tensor
    count: Size
    padding: int
    """Index that does not contribute; negative for none."""
    width: int | None = None
    """Number of indices in each bag; None where bags differ."""
    bag_numbers: Tensor | None = None
    """Bag of each index, where bags differ in size."""
    check: BoundsCheck = "assumed"
    """Treatment of a bag number out of range."""

    def bag(self, j: Size) -> Size:
        """Bag of index ``j``."""
        if self.bag_numbers is None:
            assert self.width is not None, "bags have one width or listed numbers"
            return floordiv(j, self.width)
        return self.ctx.indirect(self.bag_numbers.load((j,)), self.count, check=self.check)

    def counts(self, j: Size) -> Expr:
        """True where index ``j`` is not the padding."""
        if self.padding < 0:
            return build.const(True, b1)
        return build.op("ne", self.indices.load((j,)), build.const(self.padding, self.indices.dtype))

    def row(self, table: Tensor, j: Size, column: Size) -> Expr:
        """Element of the table's row that index ``j`` selects, in the dtype of sums."""
        row = self.ctx.indirect(self.indices.load((j,)), table.shape[0], fault="element")
        return build.cast(table.load((row, column)), compute_dtype(table.dtype))

    def combined(
        self, mode: ScatterMode, body: Callable[[Size, Size], Expr], dtype: DType, name: str, columns: Size
    ) -> Tensor:
        """Combine ``body(j, column)`` over the indices of each bag, except padding; an intermediate of ``dtype``."""
        kind = self.ctx.temporary(dtype, (self.count, columns))
        nothing = build.const(identity(mode, dtype), dtype)

        def term(j: Size, column: Size) -> Expr:
            return build.masked(self.counts(j), body(j, column), nothing)

        if self.width is not None:
            width = self.width

            def of_bag(point: Axes, inner: Axes) -> Expr:
                return term(add(mul(point[0], width), inner[0]), point[1])

            return self.ctx.reduction(_REDUCTIONS[mode], of_bag, (width,), (kind,), (name,))[0]
        over = (self.indices.shape[0], columns)
        blank = self.ctx.pointwise(lambda point: nothing, kind, "blank")
        return self.ctx.scatter(
            blank, over, lambda point: (self.bag(point[0]), point[1]), lambda point: term(*point),
            mode=mode, type=kind, name=name,
        )  # fmt: skip

    def largest(self, table: Tensor) -> Tensor:
        """Position of the index with the largest element, for each bag and column; beyond all positions for empty
        bags."""
        wide, columns = compute_dtype(table.dtype), table.shape[1]
        first = self.combined("min", lambda j, column: build.index(j), i64, "first", 1)

        def element(j: Size, column: Size) -> tuple[Num, Num]:
            """Element, and True where it is a NaN that counts."""
            value = Num(self.row(table, j, column))
            return value, f.isnan(value) & f.index(j).eq(Num(first.load((self.bag(j), 0))))

        def comparable(j: Size, column: Size) -> Expr:
            value, begins = element(j, column)
            return f.where(f.isnan(value) & ~begins, extreme(wide, largest=False), value).expr

        best = self.combined("max", comparable, wide, "best", columns)

        def position(j: Size, column: Size) -> Expr:
            value, begins = element(j, column)
            is_best = value.eq(Num(best.load((self.bag(j), column))))
            return f.where(begins | is_best, f.index(j), extreme(i64, largest=True)).expr

        return self.combined("min", position, i64, "position", columns)


def _bags(ctx: LoweringContext, indices: Tensor, offsets: Tensor, count: Size, padding: int) -> _Bags:
    """Bags that begin at the first ``count`` of ``offsets``; the first offset must be 0."""
    number = indices.shape[0]
    known = stair_of(ctx.builder, offsets, number)
    stair = None if known is None else known[0]
    if stair is not None and offsets.shape[0] == count and number == mul(count, stair.slope):
        if stair.divisor == 1 and stair.offset == 0 and stair.low is None and stair.high is None:
            return _Bags(ctx, indices, count, padding, stair.slope)
    if count != 0:
        alone = ctx.temporary(offsets.dtype, ())
        first = build.cast(ctx.view(offsets, lambda axes: (0,), alone, name="first").load(()), i64)
        ctx.check(build.op("eq", first, build.const(0, i64)), "offsets[0] has to be 0")
    kind = ctx.temporary(i64, (add(number, 1),))
    # The first bag has number 0 but is counted as begun.
    blank = ctx.pointwise(lambda at: f.where(f.index(at[0]).eq(0), f.index(-1), 0).expr, kind, "blank")
    begun = ctx.scatter(
        blank, (count,), lambda at: (ctx.indirect(offsets.load(at), kind.shape[0], fault="element"),),
        lambda at: build.const(1, i64), mode="add", type=kind, name="begun",
    )  # fmt: skip
    bag_numbers = ctx.scan("sum", begun.load, 0, (kind,), ("places",))[0]
    return _Bags(ctx, indices, count, padding, bag_numbers=bag_numbers)


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
) -> tuple[Tensor, ...]:
    """Result of each bag, bag of each index, sizes of bags, and rows of the maxima.

    The backward pass reads the later ones. Eager leaves out those that it does not need, and returns a copy of
    the sizes in place of rows where the mode is not maximum.
    """
    result, bag_numbers, sizes, largest = ctx.outputs
    assert result is not None and bag_numbers is not None and sizes is not None and largest is not None
    bags = _bags(ctx, indices, offsets, result.shape[0], padding_idx)
    counted = bags.combined("add", lambda j, column: build.const(1, i64), i64, "counted", 1)
    fast = bag_numbers.shape[0] == 0

    def size_of(axes: Axes) -> Expr:
        # Eager's sizes have an entry for the last offset too.
        inside = build.op("lt", build.index(axes[0]), build.index(bags.count))
        nothing = build.const(0, i64)
        return nothing if fast else build.masked(inside, counted.load((axes[0], 0)), nothing)

    if mode == MAX:
        values, rows = _largest(bags, weight, result, largest)
    else:
        values = _summed(bags, weight, per_sample_weights, counted if mode == MEAN else None, result)
        rows = ctx.pointwise(size_of, largest, "3")
    bag_of = ctx.pointwise(
        lambda axes: build.const(0, i64) if fast else build.index(bags.bag(axes[0])), bag_numbers, "1"
    )
    return values, bag_of, ctx.pointwise(size_of, sizes, "2"), rows


def _summed(
    bags: _Bags, weight: Tensor, shares: Tensor | None, counted: Tensor | None, result: TensorType
) -> Tensor:
    """Sum of each bag, weighted by ``shares``; the mean where sizes are in ``counted``."""
    wide = compute_dtype(weight.dtype)

    def body(j: Size, column: Size) -> Expr:
        value = Num(bags.row(weight, j, column))
        return (value if shares is None else value * Num(build.cast(shares.load((j,)), wide))).expr

    total = bags.combined("add", body, wide, "total", weight.shape[1])

    def finish(axes: Axes) -> Expr:
        value = Num(total.load(axes))
        return (value if counted is None else _mean(value, Num(counted.load((axes[0], 0))))).expr

    return bags.ctx.pointwise(finish, result, "0")


def _mean(value: Num, size: Num) -> Num:
    """Sum of a bag divided by its size; an empty bag is divided by 1."""
    return value / f.maximum(size, 1).to(value.dtype)


def _largest(bags: _Bags, weight: Tensor, result: TensorType, rows: TensorType) -> tuple[Tensor, Tensor]:
    """Largest elements of each bag, and the rows that they are in; 0 for empty bags."""
    ctx, indices = bags.ctx, bags.indices
    position = bags.largest(weight)

    def of_largest(axes: Axes, value: Callable[[Size], Expr]) -> Expr:
        found = Num(position.load(axes))
        j = ctx.indirect(found.expr, indices.shape[0], check="assumed")
        read = value(j)
        return build.masked((found < f.index(indices.shape[0])).expr, read, build.const(0, read.dtype))

    values = ctx.pointwise(lambda at: of_largest(at, lambda j: bags.row(weight, j, at[1])), result, "0")
    return values, ctx.pointwise(lambda at: of_largest(at, lambda j: indices.load((j,))), rows, "3")


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
    """Add the gradient of every bag to the rows that it was computed from."""
    if sparse:
        return Declined("the gradient is sparse")
    if mode == MAX:
        return _gradient_of_largest(ctx, grad, bag_size, maximum_indices)
    bags = _bags(ctx, indices, offsets, grad.shape[0], padding_idx)
    sizes = bag_size if mode == MEAN else None
    return _gradient(bags, grad, sizes, per_sample_weights, scale_grad_by_freq)


@rule("aten._embedding_bag_dense_backward.default")
def embedding_bag_dense_backward(
    ctx: LoweringContext,
    grad: Tensor,
    indices: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: Size,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor:
    """Gradient of the table, for indices whose bags are listed."""
    if mode == MAX:
        return _gradient_of_largest(ctx, grad, bag_size, maximum_indices)
    bags = _Bags(ctx, indices, grad.shape[0], padding_idx, bag_numbers=offset2bag, check="raised")
    sizes = bag_size if mode == MEAN else None
    return _gradient(bags, grad, sizes, per_sample_weights, scale_grad_by_freq)


def _gradient(
    bags: _Bags, grad: Tensor, sizes: Tensor | None, shares: Tensor | None, scale_grad_by_freq: bool
) -> Tensor:
    """Gradient of sums, and of means where ``sizes`` of the bags are given."""
    ctx, indices = bags.ctx, bags.indices
    wide = compute_dtype(grad.dtype)
    kind = ctx.temporary(wide, ctx.output.shape)
    frequencies = _frequencies(ctx, indices, kind.shape[0]) if scale_grad_by_freq else None

    def row(j: Size) -> Size:
        return ctx.indirect(indices.load((j,)), kind.shape[0])

    def body(point: Axes) -> Expr:
        j, column = point
        bag = bags.bag(j)
        value = Num(build.cast(grad.load((bag, column)), wide))
        if shares is not None:
            value = value * Num(build.cast(shares.load((j,)), wide))
        if frequencies is not None:
            value = value / Num(frequencies.load((row(j),))).to(wide)
        if sizes is not None:
            value = _mean(value, Num(sizes.load((bag,))))
        return build.masked(bags.counts(j), value.expr, build.const(0, wide))

    total = ctx.scatter(
        zeros(ctx, kind), (indices.shape[0], grad.shape[1]), lambda point: (row(point[0]), point[1]), body,
        mode="add", type=kind, name="total",
    )  # fmt: skip
    return ctx.pointwise(total.load)


def _gradient_of_largest(ctx: LoweringContext, grad: Tensor, sizes: Tensor, rows: Tensor) -> Tensor:
    """Add each element of a bag's gradient to the row with the bag's maximum; empty bags have none."""
    wide = compute_dtype(grad.dtype)
    kind = ctx.temporary(wide, ctx.output.shape)
    if kind.shape[0] == 0:
        return ctx.pointwise(lambda point: build.const(0, wide))

    def row_and_column(point: Axes) -> tuple[Size, Size]:
        return ctx.indirect(rows.load(point), kind.shape[0]), point[1]

    def body(point: Axes) -> Expr:
        some = Num(sizes.load((point[0],))).ne(0)
        return build.masked(some.expr, build.cast(grad.load(point), wide), build.const(0, wide))

    total = ctx.scatter(
        zeros(ctx, kind), grad.shape, row_and_column, body, mode="add", type=kind, name="total"
    )
    return ctx.pointwise(total.load)


def _frequencies(ctx: LoweringContext, indices: Tensor, rows: Size) -> Tensor:
    """Divisors of the gradient of each row: an intermediate of ``i64``, positive for selected rows.

    On the CPU it is not always the row's own frequency: for the n-th distinct index, eager takes the frequency of
    the n-th of all indices in order.
    """
    frequencies = occurrences(ctx, indices, rows, i64)
    if ctx.output.device.kind != "cpu":
        return frequencies
    kind, listed = frequencies.type, ctx.temporary(i64, (add(indices.shape[0], 1),))
    one = build.const(1, i64)
    (through,) = ctx.scan("sum", frequencies.load, 0, (kind,), ("through",))
    (distinct,) = ctx.scan(
        "sum", lambda at: (Num(frequencies.load(at)) > 0).to(i64).expr, 0, (kind,), ("distinct",)
    )
    ended = ctx.scatter(
        zeros(ctx, listed), (rows,),
        lambda at: (ctx.indirect(through.load(at), listed.shape[0], check="assumed"),), lambda at: one,
        mode="add", type=listed, name="ended",
    )  # fmt: skip
    (in_order,) = ctx.scan("sum", ended.load, 0, (listed,), ("in_order",))

    def divisor(at: Axes) -> Expr:
        number = (Num(distinct.load(at)) - 1).expr
        other = in_order.load((ctx.indirect(number, listed.shape[0], check="assumed"),))
        frequency = frequencies.load((ctx.indirect(other, rows, check="assumed"),))
        return build.masked((Num(frequencies.load(at)) > 0).expr, frequency, one)

    return ctx.pointwise(divisor, kind, "divisors")


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
    """Dot product of each index's row with the gradient of its bag."""
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
