"""FlexAttention: softmax-weighted values, with scores that are never stored."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from litz_ir.dtypes import f32
from litz_ir.scalar import Expr, FullRange, Heads, QueryKeyPoint, attention, build
from litz_lowering.contexts.context import Axes, Lowered, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.contexts.values import Subgraph, axes_of
from litz_lowering.rules.flex_attention.blocks import ListedBlocks, keys_of
from litz_lowering.rules.flex_attention.scores import LN2, FlexScores


@rule("higher_order.flex_attention")
def flex_attention(
    ctx: LoweringContext, query: Tensor, key: Tensor, value: Tensor, score_mod: Subgraph,
    block_mask: Sequence[Any], scale: Expr | float, kernel_options: Mapping[str, Any],
    score_mod_other_buffers: Sequence[Lowered] = (), mask_mod_other_buffers: Sequence[Lowered] = (),
) -> Lowered:  # fmt: skip
    """Attention, and the logsumexp and the maximum of scores, both in base 2."""
    others = (score_mod_other_buffers, mask_mod_other_buffers)
    scores = FlexScores(ctx, (query, key, value), scale, block_mask[-1], others)
    keys = keys_of(block_mask, query.shape[2], key.shape[2])
    heads = replace(scores.heads, split=not keys.heads)
    maximum, total, weighted = _weighted_sums(ctx, scores, score_mod, heads, keys)

    def row(x: Tensor, axes: Axes) -> Expr:
        b, h, m, *_ = axes
        return x.load((b, *heads.divided(h), m, 0))

    def quotient(axes: Axes) -> Expr:
        b, h, m, d = axes
        return attention.normalized(weighted.load((b, *heads.divided(h), m, d)), row(total, axes))

    def logarithm(axes: Axes) -> Expr:
        return _in_base_2(build.op("add", row(maximum, axes), build.op("log", row(total, axes))))

    bodies = (quotient, logarithm, lambda axes: _in_base_2(row(maximum, axes)))
    return tuple(
        ctx.pointwise(body, kind, ctx.position(number))
        for number, (body, kind) in enumerate(zip(bodies, ctx.outputs, strict=True))
    )


def _in_base_2(x: Expr) -> Expr:
    return build.op("div", x, build.const(LN2, f32))


def _weighted_sums(
    ctx: LoweringContext,
    scores: FlexScores,
    score_mod: Subgraph,
    heads: Heads,
    keys: FullRange | ListedBlocks,
) -> tuple[Tensor, Tensor, Tensor]:
    """Maximum and total of each row of scores, with a last dimension of 1, and the weighted sums of values."""
    function, (batch, _, queries, _) = scores.function(score_mod), scores.query.shape
    rows = (batch, *heads.sizes, queries)
    per_row, per_value = (ctx.temporary(f32, (*rows, last)) for last in (1, scores.value.shape[3]))
    axes = (*axes_of(per_value.shape), *axes_of(keys.sizes, "r"))

    def body(outer: Axes, inner: Axes) -> tuple[Expr, Expr]:
        b, *indices, m, d = outer
        head, kv_head = heads.at(indices)
        summed = keys.at(b, head, m, inner)
        point = QueryKeyPoint(b, head, kv_head, m, summed.position, summed.promised)
        value = build.cast(scores.of_key(scores.value, point, d), f32)
        score = summed.or_else(scores.final(function, point, axes), build.const(-math.inf, f32))
        return score, summed.read(value, build.const(0.0, f32))

    types = (per_row, per_row, per_value)
    maximum, total, weighted = ctx.reduction("softmax_sum", body, keys.sizes, types, ("max", "total", "sum"))
    return maximum, total, weighted
