"""Convolutions as contractions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from litz_ir.contraction import CONVOLUTION, CONVOLUTION_BACKWARD, CONVOLUTIONS, by_role
from litz_ir.loops import ContractionCall
from litz_ir.symbols import Size, mul, product
from litz_lowering.contexts.context import LoweringContext, Tensor
from litz_lowering.contexts.registry import rule


def _flops(given: Mapping[str, Any], positions: Sequence[Size]) -> Size:
    """Two operations per multiply-add, for each weight at each of ``positions`` and each batch element."""
    return mul(2, given["input"].shape[0], product(given["weight"].shape), product(positions))


@rule(CONVOLUTION, how="library")
def convolution(ctx: LoweringContext, *args: Any, **kwargs: Any) -> Tensor:
    """Convolution, transposed or not, with eager's strides."""
    given = by_role(CONVOLUTIONS[CONVOLUTION], args, kwargs.items())
    flops = _flops(given, (given["input"] if given["transposed"] else ctx.output).shape[2:])
    return ctx.call(
        ContractionCall,
        CONVOLUTION,
        args,
        kwargs,
        kind="convolution",
        layout_requirement="exact",
        flops=flops,
    )[0]


@rule(CONVOLUTION_BACKWARD, how="library")
def convolution_backward(ctx: LoweringContext, *args: Any, **kwargs: Any) -> tuple[Tensor | None, ...]:
    """Gradients requested by ``output_mask``; each costs as much as the convolution."""
    given = by_role(CONVOLUTIONS[CONVOLUTION_BACKWARD], args, kwargs.items())
    mask = given["output_mask"]
    flops = mul(_flops(given, given["grad_output"].shape[2:]), sum(map(bool, mask[:2])))
    results = ctx.call(
        ContractionCall,
        CONVOLUTION_BACKWARD,
        args,
        kwargs,
        kind="convolution",
        layout_requirement="exact",
        flops=flops,
    )
    return tuple(t if wanted else None for t, wanted in zip(results, mask))
