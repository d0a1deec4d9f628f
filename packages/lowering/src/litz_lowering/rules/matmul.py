"""Matrix products as contractions: what they compute, and the ATen operation that always can."""

from __future__ import annotations

from typing import Any

from litz_ir.loops.nodes import Contraction
from litz_ir.symbols.term import Size, mul, product
from litz_lowering.context import LoweringContext, Tensor
from litz_lowering.registry import rule


def _contraction(ctx: LoweringContext, inner: Size, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    return ctx.call(
        Contraction,
        str(ctx.node.target),
        args,
        kwargs,
        kind="matmul",
        flops=mul(2, product(ctx.output.shape), inner),
    )[0]


@rule("aten.mm.default", "aten.bmm.default", "aten.mv.default", "aten.dot.default", "aten._int_mm.default",
      "aten.mm.dtype", "aten.bmm.dtype")  # fmt: skip
def mm(ctx: LoweringContext, a: Tensor, b: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """A product of matrices, of batches of them, or of a matrix and a vector."""
    return _contraction(ctx, a.shape[-1], (a, b, *args), kwargs)


@rule("aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default", "aten.addbmm.default",
      "aten.addmm.dtype", "aten.baddbmm.dtype")  # fmt: skip
def addmm(ctx: LoweringContext, bias: Tensor, a: Tensor, b: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """A product added to something."""
    return _contraction(ctx, a.shape[-1], (bias, a, b, *args), kwargs)
