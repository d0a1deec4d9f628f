"""What a library computes on complex tensors: Fourier transforms, matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from litz_ir.loops import Contraction, Extern
from litz_ir.symbols import Size, mul, product
from litz_lowering.context import Complex, LoweringContext, Tensor
from litz_lowering.registry import REGISTRY, complex_rule

_REASON = "a library's routine"


def _results(ctx: LoweringContext, found: tuple[Tensor, ...]) -> tuple[Tensor | Complex, ...]:
    """The results of a call, complex ones as such."""
    return tuple(
        Complex(t) if is_complex else t for t, is_complex in zip(found, ctx.complex_outputs, strict=True)
    )


@complex_rule("aten._fft_c2c.default", "aten._fft_r2c.default", "aten._fft_c2r.default", how="library")
def transform(ctx: LoweringContext, *args: Any, **kwargs: Any) -> Tensor | Complex:
    """A Fourier transform."""
    found = ctx.call(Extern, str(ctx.node.target), args, kwargs, need="exact", reason=_REASON)
    return _results(ctx, found)[0]


def _multiplied(inner: Callable[..., Size], *overloads: str) -> None:
    def multiply(ctx: LoweringContext, *args: Any, **kwargs: Any) -> Tensor | Complex:
        flops = mul(8, product(ctx.output.shape), inner(*args))
        found = ctx.call(
            Contraction, str(ctx.node.target), args, kwargs, kind="matmul", need="exact", flops=flops
        )
        return _results(ctx, found)[0]

    REGISTRY.add_complex(multiply, *(f"aten.{name}.default" for name in overloads), how="library")


_multiplied(lambda a, *_: a.shape[-1], "mm", "bmm", "mv", "dot", "vdot")
_multiplied(lambda bias, a, *_: a.shape[-1], "addmm", "baddbmm", "addmv", "addbmm")


@complex_rule("aten.convolution.default", "aten.convolution_backward.default", how="library")
def convolution(ctx: LoweringContext, *args: Any, **kwargs: Any) -> Any:
    """A convolution, or the gradients of one."""
    found = ctx.call(
        Contraction, str(ctx.node.target), args, kwargs, kind="convolution", need="exact",
        flops=mul(8, product(args[0].shape)),
    )  # fmt: skip
    results = _results(ctx, found)
    return ctx.nested(results) if ctx.unpack else results[0]
