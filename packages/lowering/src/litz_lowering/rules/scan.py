"""Running combinations along a dimension."""

from __future__ import annotations

from typing import Any

from litz_ir.dtypes import accumulate_dtype
from litz_ir.loops.nodes import ReductionName
from litz_ir.scalar import build
from litz_lowering.context import LoweringContext, Tensor
from litz_lowering.registry import rule
from litz_lowering.rules.view import dimension


def _running(ctx: LoweringContext, combiner: ReductionName, x: Tensor, dim: int) -> Tensor:
    kind = ctx.output
    if x.rank == 0:
        return ctx.pointwise(x.load)
    wide = accumulate_dtype(kind.dtype)
    held = kind if kind.dtype == wide else ctx.temporary(wide, kind.shape)
    total = ctx.scan(
        combiner,
        lambda axes: build.cast(build.cast(x.load(axes), kind.dtype), wide),
        dimension(dim, x.rank),
        (held,),
        ("" if held is kind else combiner,),
    )[0]
    return total if held is kind else ctx.pointwise(total.load)


@rule("aten.cumsum.default")
def cumsum(ctx: LoweringContext, x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Running sums."""
    return _running(ctx, "sum", x, dim)


@rule("aten.cumprod.default")
def cumprod(ctx: LoweringContext, x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Running products."""
    return _running(ctx, "prod", x, dim)
