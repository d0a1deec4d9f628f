"""Scaled dot-product attention as a contraction."""

from __future__ import annotations

from typing import Any

from litz_ir.loops import ContractionCall
from litz_ir.symbols import Size, mul, product
from litz_lowering.contexts.context import LoweringContext, Tensor
from litz_lowering.contexts.registry import rule

_FORWARD = (
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
    "aten._scaled_dot_product_flash_attention.default",
    "aten._scaled_dot_product_efficient_attention.default",
    "aten._scaled_dot_product_cudnn_attention.default",
    "aten._scaled_dot_product_fused_attention_overrideable.default",
)
_BACKWARD = tuple(name.removesuffix(".default") + "_backward.default" for name in _FORWARD)


def _flops(query: Tensor, key: Tensor) -> Size:
    """Operations of QK^T and of P V."""
    return mul(4, product(query.shape), key.shape[-2])


@rule(*_FORWARD, how="library")
def attention(ctx: LoweringContext, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """Attention, and the values that this variant saves for the backward pass; dropout draws from ATen's
    generator."""
    token = "rng" if ctx.named_arguments.get("dropout_p", 0.0) else ""
    results = ctx.call(
        ContractionCall, str(ctx.node.target), args, kwargs, kind="attention", layout_requirement="exact", token=token,
        flops=_flops(args[0], args[1]),
    )  # fmt: skip
    return ctx.nested(results)


@rule(*_BACKWARD, how="library")
def attention_backward(ctx: LoweringContext, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """Gradients of query, key and value, and of the bias where the variant has one."""
    results = ctx.call(
        ContractionCall, str(ctx.node.target), args, kwargs, kind="attention", layout_requirement="exact",
        flops=mul(_flops(args[1], args[2]), 2),
    )  # fmt: skip
    return ctx.nested(results)
