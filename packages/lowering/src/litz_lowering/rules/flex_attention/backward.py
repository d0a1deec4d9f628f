"""Gradient of FlexAttention: sums over keys or queries of recomputed scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from litz_ir.dtypes import f32
from litz_ir.loops import Axis, LoopGraph
from litz_ir.scalar import Expr, FullRange, QueryKeyPoint, build
from litz_ir.symbols import Size
from litz_lowering.contexts.context import Axes, Lowered, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.contexts.values import Subgraph, axes_of
from litz_lowering.rules.flex_attention.blocks import ListedBlocks, keys_of, queries_of
from litz_lowering.rules.flex_attention.captured import CapturedGradients
from litz_lowering.rules.flex_attention.scores import LN2, FlexScores

_ScoreFactor = Callable[[QueryKeyPoint, Sequence[Axis]], Expr]
"""Factor of a query and a key in a sum, in a loop over axes."""


@rule("higher_order.flex_attention_backward")
def flex_attention_backward(
    ctx: LoweringContext, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor,
    grad_out: Tensor, grad_logsumexp: Tensor | None, fw_graph: Subgraph, joint_graph: Subgraph,
    block_mask: Sequence[Any], scale: Expr | float, kernel_options: Mapping[str, Any],
    score_mod_other_buffers: Sequence[Lowered] = (), mask_mod_other_buffers: Sequence[Lowered] = (),
) -> Lowered:  # fmt: skip
    """Gradients of queries, keys and values, and those in use of tensors that the score function captures."""
    others = (score_mod_other_buffers, mask_mod_other_buffers)
    scores = FlexScores(ctx, (query, key, value), scale, block_mask[-1], others)
    forward, joint = map(scores.function, (fw_graph, joint_graph))
    excess = _excess(ctx, out, grad_out, grad_logsumexp)

    def weight(point: QueryKeyPoint, axes: Sequence[Axis]) -> Expr:
        return _weight(scores, forward, logsumexp, point, axes)

    def made(point: QueryKeyPoint, axes: Sequence[Axis]) -> tuple[Expr, ...]:
        dot = scores.dot(grad_out, value, point, "e1")
        difference = build.op("sub", dot, scores.of_query(excess, point))
        given = build.op("mul", weight(point, axes), difference)
        return scores.results(joint, point, axes, (scores.raw(point),), (given,))

    def gradient(point: QueryKeyPoint, axes: Sequence[Axis]) -> Expr:
        first, *_ = made(point, axes)
        scaled = build.op("mul", build.cast(first, f32), scores.scale)
        shown = build.where(scores.visible(point, axes), scaled, build.const(0.0, f32))
        return build.cast(shown, query.dtype)

    def rounded(point: QueryKeyPoint, axes: Sequence[Axis]) -> Expr:
        return build.cast(weight(point, axes), query.dtype)

    lengths = (query.shape[2], key.shape[2])
    queries = _of_queries(ctx, scores, gradient, keys_of(block_mask, *lengths))
    summed = queries_of(block_mask, *lengths)
    values = _of_keys(ctx, scores, rounded, grad_out, 2, summed)
    keys = _of_keys(ctx, scores, gradient, query, 1, summed)
    captured = CapturedGradients(ctx, scores, joint, made, block_mask)
    return queries, keys, values, captured.gradients(len(score_mod_other_buffers))


def _excess(ctx: LoweringContext, out: Tensor, given: Tensor, of_total: Tensor | None) -> Tensor:
    """Row term subtracted from the gradients of softmax weights.

    It is the sum of ``out * grad_out`` over the row, minus the gradient of the row's logsumexp.
    """

    def product(outer: Axes, inner: Axes) -> Expr:
        at = (*outer, *inner)
        return build.op("mul", build.cast(out.load(at), f32), build.cast(given.load(at), f32))

    kind = ctx.temporary(f32, out.shape[:3])
    (mean,) = ctx.reduction("sum", product, out.shape[3:], (kind,), ("mean",))
    if of_total is None:
        return mean

    def body(axes: Axes) -> Expr:
        natural = build.op("div", build.cast(of_total.load(axes), f32), build.const(LN2, f32))
        return build.op("sub", mean.load(axes), natural)

    return ctx.pointwise(body, kind, "excess")


def _weight(
    scores: FlexScores, forward: LoopGraph, logsumexp: Tensor, point: QueryKeyPoint, axes: Sequence[Axis]
) -> Expr:
    """Softmax weight of a key; 0 in a row without keys."""
    log_total = scores.of_query(logsumexp, point)
    natural = build.op("mul", log_total, build.const(LN2, f32))
    empty = build.op("eq", log_total, build.const(-math.inf, f32))
    shift = build.where(empty, build.const(math.inf, f32), natural)
    return build.op("exp", build.op("sub", scores.final(forward, point, axes), shift))


def _of_queries(
    ctx: LoweringContext, scores: FlexScores, gradient: _ScoreFactor, keys: FullRange | ListedBlocks
) -> Tensor:
    """Gradient of the queries: the sum over keys."""
    batch, _, queries, depth = scores.query.shape
    heads = replace(scores.heads, split=not keys.heads)
    kind = ctx.temporary(f32, (batch, *heads.sizes, queries, depth))
    axes = (*axes_of(kind.shape), *axes_of(keys.sizes, "r"))

    def body(outer: Axes, inner: Axes) -> Expr:
        b, *indices, m, d = outer
        head, kv_head = heads.at(indices)
        summed = keys.at(b, head, m, inner)
        point = QueryKeyPoint(b, head, kv_head, m, summed.position, summed.promised)
        return summed.term(gradient(point, axes), scores.of_key(scores.key, point, d))

    (total,) = ctx.reduction("sum", body, keys.sizes, (kind,), ("0_sum",))

    def rounded(at: Axes) -> Expr:
        b, h, m, d = at
        return total.load((b, *heads.divided(h), m, d))

    return ctx.pointwise(rounded, ctx.outputs[0], "0")


def _of_keys(
    ctx: LoweringContext,
    scores: FlexScores,
    factor: _ScoreFactor,
    rows: Tensor,
    position: int,
    queries: FullRange | ListedBlocks,
) -> Tensor:
    """Gradient of keys or values: the sum over queries of all heads of the group, and over a shared batch."""
    wanted = ctx.outputs[position]
    assert wanted is not None, "every operand has a gradient"
    heads, batch, kind = scores.heads, scores.query.shape[0], ctx.temporary(f32, wanted.shape)
    is_batch_shared, grouped = kind.shape[0] == 1 != batch, heads.group_size != 1
    if isinstance(queries, ListedBlocks) and (
        (is_batch_shared and queries.batches) or (grouped and queries.heads)
    ):
        queries = FullRange(queries.length)  # block lists differ along a summed axis
    before: tuple[Size, ...] = (
        *((batch,) if is_batch_shared else ()),
        *((heads.group_size,) if grouped else ()),
    )
    over = (*before, *queries.sizes)
    axes = (*axes_of(kind.shape), *axes_of(over, "r"))

    def body(outer: Axes, inner: Axes) -> Expr:
        b, kv_head, n, d = outer
        b = inner[0] if is_batch_shared else b
        head = heads.at((kv_head, inner[len(before) - 1]))[0] if grouped else kv_head
        summed = queries.at(b, head, n, inner[len(before) :])
        point = QueryKeyPoint(b, head, kv_head, summed.position, n, summed.promised)
        return summed.term(factor(point, axes), scores.of_query(rows, point, d))

    (total,) = ctx.reduction("sum", body, over, (kind,), (f"{position}_sum",))
    return ctx.pointwise(total.load, wanted, str(position))
