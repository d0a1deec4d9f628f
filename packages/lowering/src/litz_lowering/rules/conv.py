"""Convolutions as contractions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from litz_ir.loops import Contraction
from litz_ir.symbols import Size, mul, product
from litz_lowering.context import LoweringContext, Tensor
from litz_lowering.registry import rule


def _flops(weight: Tensor, positions: Sequence[Size], batch: Size) -> Size:
    """Two per multiply-add: every weight meets every position of the side that it slides over."""
    return mul(2, batch, product(weight.shape), product(positions))


@rule("aten.convolution.default", how="library")
def convolution(ctx: LoweringContext, x: Tensor, weight: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """A convolution, transposed or not; its result has eager's strides."""
    transposed = bool(args[4]) if len(args) > 4 else bool(kwargs.get("transposed"))
    positions = x.shape[2:] if transposed else ctx.output.shape[2:]
    flops = _flops(weight, positions, x.shape[0])
    return ctx.call(
        Contraction,
        str(ctx.node.target),
        (x, weight, *args),
        kwargs,
        kind="convolution",
        need="exact",
        flops=flops,
    )[0]


@rule("aten.convolution_backward.default", how="library")
def convolution_backward(
    ctx: LoweringContext, grad: Tensor, x: Tensor, weight: Tensor, *args: Any, **kwargs: Any
) -> tuple[Tensor | None, ...]:
    """The gradients that ``output_mask`` asks for; each costs as much as the convolution."""
    mask = kwargs["output_mask"] if "output_mask" in kwargs else args[-1]
    flops = mul(_flops(weight, grad.shape[2:], x.shape[0]), sum(map(bool, mask[:2])))
    results = ctx.call(
        Contraction, str(ctx.node.target), (grad, x, weight, *args), kwargs, kind="convolution", need="exact",
        flops=flops,
    )  # fmt: skip
    return tuple(t if wanted else None for t, wanted in zip(results, mask))
