"""Operators whose result size depends on values: ``repeat_interleave`` and ``bincount``."""

from __future__ import annotations

from litz_ir.dtypes import i64
from litz_ir.loops import ReductionName
from litz_ir.scalar import build
from litz_ir.symbols import Size, Symbol, add
from litz_lowering.contexts.context import LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num
from litz_lowering.rules.indexing.scatter import zeros


def _reduced_to_scalar(ctx: LoweringContext, combiner: ReductionName, x: Tensor) -> Num:
    """Combine all elements of ``x`` to an ``i64``."""
    kind = ctx.temporary(i64, (), x.device)
    found = ctx.reduction(combiner, lambda _, at: build.cast(x.load(at), i64), x.shape, (kind,), (combiner,))
    return Num(found[0].load(()))


def _bind_length(ctx: LoweringContext, length: Num, message: str) -> None:
    """Define the result's size as ``length``; where it is promised already, raise ``message`` at run time unless
    equal."""
    size = ctx.output.shape[0]
    if isinstance(size, Symbol) and ctx.unbacked and size.name not in ctx.builder.bound:
        ctx.bind(size.name, length.expr)
    else:
        ctx.check(length.eq(f.index(size)).expr, message)


@rule("aten.repeat_interleave.Tensor")
def repeat_interleave(ctx: LoweringContext, repeats: Tensor, *, output_size: Size | None = None) -> Tensor:
    """Repeat each position ``repeats`` times, by counting the runs that end before each result."""
    ctx.check((_reduced_to_scalar(ctx, "min", repeats) >= 0).expr, "repeats can not be negative")
    _bind_length(ctx, _reduced_to_scalar(ctx, "sum", repeats), "allocated size does not match required size")
    runs, positions = (
        ctx.temporary(i64, (s,), repeats.device) for s in (repeats.shape[0], add(ctx.output.shape[0], 1))
    )
    ends = ctx.scan("sum", lambda at: build.cast(repeats.load(at), i64), 0, (runs,), ("ends",))[0]
    ended = ctx.scatter(
        zeros(ctx, positions),
        runs.shape,
        lambda at: (ctx.indirect(ends.load(at), positions.shape[0]),),
        lambda at: build.const(1, i64),
        mode="add",
        type=positions,
        name="ended",
    )
    return ctx.pointwise(ctx.scan("sum", ended.load, 0, (positions,), ("running",))[0].load)


@rule("aten.bincount.default")
def bincount(ctx: LoweringContext, x: Tensor, weights: Tensor | None = None, minlength: Size = 0) -> Tensor:
    """Number of occurrences of each integer, or the sum of their weights."""
    ctx.check(
        (_reduced_to_scalar(ctx, "min", x) >= 0).expr,
        "bincount only supports 1-d non-negative integral inputs.",
    )
    largest = _reduced_to_scalar(ctx, "max", x)
    _bind_length(
        ctx, f.maximum(largest + 1, f.index(minlength)), "bincount: another number of bins was promised"
    )
    kind = ctx.output
    blank = zeros(ctx, ctx.temporary(kind.dtype, kind.shape))
    one = build.const(1, kind.dtype)
    return ctx.scatter(
        blank,
        x.shape,
        lambda at: (ctx.indirect(x.load(at), kind.shape[0]),),
        lambda at: one if weights is None else weights.load(at),
        mode="add",
    )
