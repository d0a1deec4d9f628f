"""Library calls on complex tensors: Fourier transforms, matmuls and convolutions."""

from __future__ import annotations

from typing import Any

from litz_ir.contraction import CONVOLUTION, CONVOLUTION_BACKWARD, operand_a
from litz_ir.loops import ContractionCall, Extern
from litz_ir.symbols import mul, product
from litz_lowering.contexts.context import Complex, LoweringContext, Tensor
from litz_lowering.contexts.registry import complex_rule

_REASON = "Fourier transforms run in a library"


def _results(ctx: LoweringContext, found: tuple[Tensor, ...]) -> tuple[Tensor | Complex, ...]:
    """Wrap the complex results of a call."""
    return tuple(
        Complex(t) if is_complex else t for t, is_complex in zip(found, ctx.complex_outputs, strict=True)
    )


@complex_rule("aten._fft_c2c.default", "aten._fft_r2c.default", "aten._fft_c2r.default", how="library")
def transform(ctx: LoweringContext, *args: Any, **kwargs: Any) -> Tensor | Complex:
    """Fourier transform."""
    found = ctx.call(Extern, str(ctx.node.target), args, kwargs, layout_requirement="exact", reason=_REASON)
    return _results(ctx, found)[0]


@complex_rule(
    "aten.mm.default", "aten.bmm.default", "aten.mv.default", "aten.dot.default", "aten.vdot.default",
    "aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default", "aten.addbmm.default", how="library",
)  # fmt: skip
def matmul(ctx: LoweringContext, *args: Any, **kwargs: Any) -> Tensor | Complex:
    """Matrix-matrix or matrix-vector product."""
    target = str(ctx.node.target)
    k = operand_a(target, args, kwargs.items()).shape[-1]
    flops = mul(8, product(ctx.output.shape), k)
    found = ctx.call(
        ContractionCall, target, args, kwargs, kind="matmul", layout_requirement="exact", flops=flops
    )
    return _results(ctx, found)[0]


@complex_rule(CONVOLUTION, CONVOLUTION_BACKWARD, how="library")
def convolution(ctx: LoweringContext, *args: Any, **kwargs: Any) -> Any:
    """Convolution, or its gradients."""
    found = ctx.call(
        ContractionCall, str(ctx.node.target), args, kwargs, kind="convolution", layout_requirement="exact",
        flops=mul(8, product(args[0].shape)),
    )  # fmt: skip
    results = _results(ctx, found)
    return ctx.nested(results) if ctx.unpack else results[0]
