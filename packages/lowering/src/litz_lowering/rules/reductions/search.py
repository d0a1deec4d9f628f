"""Binary search in sorted values, unrolled to one step per bit of the number of values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from litz_ir.dtypes import compute_dtype, i64
from litz_ir.scalar import build
from litz_ir.symbols import Size, bounds
from litz_lowering.contexts.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num
from litz_lowering.expressions.promotion import operand, promoted

_MAX_STEPS = 32
"""Largest number of unrolled steps. An interval of unknown length would need one per bit of an address."""


def steps(ctx: LoweringContext, size: Size) -> int | None:
    """Number of bisection steps for an interval of ``size``; None where it is not provably at most ``_MAX_STEPS``."""
    high = bounds(size, ctx.builder.symbols.ranges()).high
    return high.bit_length() if high is not None and high.bit_length() <= _MAX_STEPS else None


def _first_not(ctx: LoweringContext, size: Size, count: int, passed: Callable[[Size], Num]) -> Num:
    """First position below ``size`` that is not ``passed``, an ``i64``; ``size`` where all are.

    ``count`` is the result of :func:`steps`. The tested positions are those that eager tests, so results agree
    for unsorted values too.
    """
    start, end = f.index(0), f.index(size)
    for _ in range(count):
        middle = Num(build.op("shift_right", (start + end).expr, build.const(1, i64)))
        result = passed(ctx.indirect(middle.expr, size, check="assumed"))
        on = Num(build.masked((start < end).expr, result.expr, f.false(result).expr))
        start, end = f.where(on, middle + 1, start), f.where(on, end, middle)
    return start


def _searched(
    ctx: LoweringContext, ordered: Tensor, value: Any, right: bool, sorter: Tensor | None
) -> Tensor | Declined:
    """Insertion position of each value in the last dimension of ``ordered``; after equal ones if ``right``."""
    common = promoted((ordered, value))
    wanted = operand(value, common, exact=False)
    size = ordered.shape[-1]
    count = steps(ctx, size)
    if count is None:
        return Declined("the number of sorted values is unbounded")

    def search(axes: Axes) -> Num:
        lead: Sequence[Size] = axes[:-1] if ordered.rank > 1 else ()
        searched = wanted(axes)

        def passed(position: Size) -> Num:
            if sorter is not None:
                position = ctx.indirect(sorter.load((*lead, position)), size)
            element = build.cast(build.cast(ordered.load((*lead, position)), common), compute_dtype(common))
            return ~(Num(element) > searched if right else Num(element) >= searched)

        return _first_not(ctx, size, count, passed)

    return ctx.pointwise(lambda axes: search(axes).expr)


@rule("aten.searchsorted.Tensor", "aten.searchsorted.Scalar")
def searchsorted(
    ctx: LoweringContext,
    sorted_sequence: Tensor,
    value: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor | Declined:
    """Insertion positions of values in sorted ones; NaN counts as larger than all."""
    return _searched(ctx, sorted_sequence, value, right or side == "right", sorter)


@rule("aten.bucketize.Tensor", "aten.bucketize.Scalar")
def bucketize(
    ctx: LoweringContext, value: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor | Declined:
    """Bucket of each value between sorted boundaries."""
    return _searched(ctx, boundaries, value, right, None)
