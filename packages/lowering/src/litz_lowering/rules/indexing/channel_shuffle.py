"""Interleaving of groups of channels."""

from __future__ import annotations

from litz_ir.scalar import Expr
from litz_ir.symbols import Size, add, floordiv, mod, mul
from litz_lowering.contexts.context import Axes, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule


@rule("aten.channel_shuffle.default", "aten.native_channel_shuffle.default", moves=True)
def channel_shuffle(ctx: LoweringContext, x: Tensor, groups: Size) -> Tensor:
    """Channels interleaved from ``groups`` groups: result channel ``k`` is channel ``k // groups`` of its group."""
    length = floordiv(x.shape[1], groups)

    def body(axes: Axes) -> Expr:
        group, position = mod(axes[1], groups), floordiv(axes[1], groups)
        return x.load((axes[0], add(mul(group, length), position), *axes[2:]))

    return ctx.pointwise(body)
