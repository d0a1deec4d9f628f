"""Matmuls as contractions, which a library or generated loops compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from litz_ir.contraction import operand_a
from litz_ir.dtypes import compute_dtype
from litz_ir.loops import ContractionCall, LayoutRequirement
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, floordiv, mul, product
from litz_lowering.contexts.context import Axes, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule


def _contraction(
    ctx: LoweringContext,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    need: LayoutRequirement = "any",
    groups: Size = 1,
) -> Tensor:
    """Call of the node's operator; ``groups`` is the number of parts into which K is divided, each summed
    separately."""
    target = str(ctx.node.target)
    k = floordiv(operand_a(target, args, kwargs.items()).shape[-1], groups)
    flops = mul(2, product(ctx.output.shape), k)
    return ctx.call(
        ContractionCall, target, args, kwargs, kind="matmul", layout_requirement=need, flops=flops
    )[0]


@rule("aten.mm.default", "aten.bmm.default", "aten.mv.default", "aten.dot.default", "aten._int_mm.default",
      "aten.mm.dtype", "aten.bmm.dtype", "aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default",
      "aten.addbmm.default", "aten.addmm.dtype", "aten.baddbmm.dtype", how="library")  # fmt: skip
def matmul(ctx: LoweringContext, *args: Any, **kwargs: Any) -> Tensor:
    """Matrix-matrix, batched or matrix-vector product, with an optional summand."""
    return _contraction(ctx, args, kwargs)


@rule(
    "aten._scaled_mm.default", "aten._scaled_mm_v2.default", "aten._weight_int8pack_mm.default", how="library"
)
def scaled(ctx: LoweringContext, *args: Any, **kwargs: Any) -> Tensor:
    """Scaled low-precision (fp8, int8) matmul, whose routines require eager's layouts."""
    return _contraction(ctx, args, kwargs, "exact")


@rule("aten._grouped_mm.default", "aten._scaled_grouped_mm.default", how="library")
def grouped(ctx: LoweringContext, a: Tensor, b: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Grouped matmul over groups of rows, of columns, or of K."""
    groups = ctx.output.shape[0] if a.rank == b.rank == 2 else 1
    return _contraction(ctx, (a, b, *args), kwargs, "exact", groups)


@rule("aten._trilinear.default")
def trilinear(
    ctx: LoweringContext, a: Tensor, b: Tensor, c: Tensor, expand1: Sequence[int], expand2: Sequence[int],
    expand3: Sequence[int], sumdim: Sequence[int], unroll_dim: int = 1,
) -> Tensor:  # fmt: skip
    """Sum over some dimensions of the product of three tensors, each with inserted dimensions of size 1."""
    factors = [(a, set(expand1)), (b, set(expand2)), (c, set(expand3))]
    rank, dtype, summed = a.rank + len(expand1), compute_dtype(a.dtype), set(sumdim)
    sizes: list[Size] = [1] * rank
    for x, expanded in factors:
        shape = iter(x.shape)
        for d in range(rank):
            size = 1 if d in expanded else next(shape)
            sizes[d] = size if sizes[d] == 1 else sizes[d]

    def body(outer: Axes, inner: Axes) -> Expr:
        outer_terms, inner_terms = iter(outer), iter(inner)
        index = [next(inner_terms) if d in summed else next(outer_terms) for d in range(rank)]
        elements = [
            build.cast(x.at(tuple(i for d, i in enumerate(index) if d not in expanded)), dtype)
            for x, expanded in factors
        ]
        return build.op("mul", build.op("mul", elements[0], elements[1]), elements[2])

    over = [sizes[d] for d in sorted(summed)]
    total = ctx.reduction("sum", body, over, (ctx.temporary(dtype, ctx.output.shape),), ("total",))[0]
    return ctx.pointwise(total.load)
