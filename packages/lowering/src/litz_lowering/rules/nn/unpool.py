"""Max unpooling."""

from __future__ import annotations

from collections.abc import Sequence

from litz_ir.symbols import Size, product
from litz_lowering.contexts.context import Axes, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions.index_maps import unflatten
from litz_lowering.rules.indexing.scatter import zeros


@rule("aten.max_unpool2d.default", "aten.max_unpool3d.default")
def max_unpool(
    ctx: LoweringContext, x: Tensor, indices: Tensor, output_size: Sequence[Size], *_: object
) -> Tensor:
    """Zeros except for the elements of ``x``, each at its row-major position within its plane."""
    kind = ctx.output
    lead = x.rank - len(output_size)
    plane = kind.shape[lead:]

    def target(axes: Axes) -> list[Size]:
        flat = ctx.indirect(indices.load(axes), product(plane), fault="unpool")
        return [*axes[:lead], *unflatten(flat, plane)]

    return ctx.scatter(zeros(ctx, kind), x.shape, target, x.load)
