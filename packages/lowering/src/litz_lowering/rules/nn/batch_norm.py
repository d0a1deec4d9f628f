"""Batch norms with their gradients, by running statistics or those of the batch."""

from __future__ import annotations

from collections.abc import Sequence

from litz_ir.dtypes import DType, compute_dtype, u8
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size
from litz_lowering.contexts.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num
from litz_lowering.rules.nn.norm import ElementReader, affine, element_reader, optional_element, tensor_types
from litz_lowering.rules.reductions.reduce import at_least_zero, count
from litz_lowering.rules.reductions.variance import moments


def _channel(axes: Axes) -> Axes:
    return (axes[1],) if len(axes) > 1 else (0,)


def _scaled_by_channel(
    ctx: LoweringContext,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: ElementReader,
    rstd: ElementReader,
    dtype: DType,
) -> Tensor:
    """``x * alpha + beta`` with a pair per channel, which eager computes from the statistics and the affine
    parameters."""
    kind = ctx.temporary(dtype, (x.shape[1],))

    def scale(axes: Axes) -> Num:
        return affine(rstd(axes), optional_element(weight, dtype, axes), None)

    def shift(axes: Axes) -> Expr:
        moved = mean(axes) * Num(alpha.load(axes))
        offset = optional_element(bias, dtype, axes)
        return (-moved if offset is None else offset - moved).expr

    alpha = ctx.pointwise(lambda axes: scale(axes).expr, kind, "alpha")
    beta = ctx.pointwise(shift, kind, "beta")
    load = element_reader(x, dtype)

    def body(axes: Axes) -> Expr:
        channel = _channel(axes)
        return (load(axes) * Num(alpha.load(channel)) + Num(beta.load(channel))).expr

    return ctx.pointwise(body, ctx.outputs[0], "0")


def _inference(
    ctx: LoweringContext,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Values normalised by the running statistics, and two results that eager leaves empty."""
    dtype = compute_dtype(x.dtype)
    _, first, second = tensor_types(ctx, 3)
    variance = element_reader(var, dtype)
    out = _scaled_by_channel(
        ctx,
        x,
        weight,
        bias,
        element_reader(mean, dtype),
        lambda axes: 1.0 / f.sqrt(variance(axes) + eps),
        dtype,
    )
    saved_mean = ctx.pointwise(lambda axes: build.cast(mean.load(axes), first.dtype), first, "1")

    def saved(axes: Axes) -> Expr:
        return (1.0 / f.sqrt(variance(axes) + eps)).expr

    return out, saved_mean, ctx.pointwise(saved, second, "2")


@rule("aten._native_batch_norm_legit_no_training.default")
def batch_norm_inference(
    ctx: LoweringContext, x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor,
    running_var: Tensor, momentum: float, eps: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Batch norm with the running statistics."""
    return _inference(ctx, x, weight, bias, running_mean, running_var, eps)


def _training(
    ctx: LoweringContext, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor, Tensor, list[Size]]:
    """Results (normalised values, mean, reciprocal deviation), mean, biased variance and reduced sizes."""
    dtype = compute_dtype(x.dtype)
    over = tuple(d for d in range(x.rank) if d != 1)
    wide_mean, variance = moments(ctx, x, over, False, 0, dtype)
    kind = variance.type

    def channel_index(axes: Axes) -> Axes:
        return tuple(axes[0] if d == 1 else 0 for d in range(x.rank))

    mean = ctx.pointwise(lambda axes: wide_mean.at(channel_index(axes)), kind, "average")
    rstd = ctx.pointwise(lambda axes: (1.0 / f.sqrt(Num(variance.load(axes)) + eps)).expr, kind, "rstd")
    out = _scaled_by_channel(
        ctx, x, weight, bias, element_reader(mean, dtype), element_reader(rstd, dtype), dtype
    )
    _, first, second = tensor_types(ctx, 3)
    saved = ctx.pointwise(mean.load, first, "1"), ctx.pointwise(rstd.load, second, "2")
    return (out, *saved), mean, variance, [x.shape[d] for d in over]


@rule("aten._native_batch_norm_legit.no_stats")
def batch_norm_without_statistics(
    ctx: LoweringContext, x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Batch norm with the statistics of the batch."""
    return _training(ctx, x, weight, bias, eps)[0]


@rule("aten._native_batch_norm_legit_functional.default")
def batch_norm(
    ctx: LoweringContext, x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor,
    running_var: Tensor, training: bool, momentum: float, eps: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Normalised values, mean, reciprocal deviation, new running mean and new running variance."""
    new_mean, new_var = ctx.outputs[3], ctx.outputs[4]
    if not training:
        results = _inference(ctx, x, weight, bias, running_mean, running_var, eps)
        copies = (
            ctx.pointwise(running_mean.load, new_mean, "3"),
            ctx.pointwise(running_var.load, new_var, "4"),
        )
        return (*results, *copies)
    results, mean, variance, elements = _training(ctx, x, weight, bias, eps)
    return (
        *results,
        *_updated_statistics(ctx, (running_mean, running_var), mean, variance, elements, momentum),
    )


def _updated_statistics(
    ctx: LoweringContext, running: tuple[Tensor, Tensor], mean: Tensor, variance: Tensor,
    elements: Sequence[Size], momentum: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Updated running statistics, which are the node's last two results."""
    dtype = mean.dtype
    number = count(ctx, elements, dtype)
    unbiased = number / at_least_zero(number - 1.0)

    def moved(position: int, old: Tensor, new: ElementReader) -> Tensor:
        before, result = element_reader(old, dtype), len(ctx.outputs) - 2 + position
        return ctx.pointwise(
            lambda axes: (momentum * new(axes) + (1.0 - momentum) * before(axes)).expr,
            ctx.outputs[result], str(result),
        )  # fmt: skip

    def unbiased_variance(axes: Axes) -> Num:
        return Num(variance.load(axes)) * unbiased

    return moved(0, running[0], element_reader(mean, dtype)), moved(1, running[1], unbiased_variance)


@rule("aten._batch_norm_with_update_functional.default")
def batch_norm_with_update(
    ctx: LoweringContext, x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor,
    running_var: Tensor, momentum: float, eps: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Normalised values, mean, reciprocal deviation, empty reserve, new running mean and new running variance."""
    results, mean, variance, elements = _training(ctx, x, weight, bias, eps)
    moved = _updated_statistics(ctx, (running_mean, running_var), mean, variance, elements, momentum)
    return (*results, _reserve(ctx), *moved)


@rule("aten._batch_norm_no_update.default")
def batch_norm_without_update(
    ctx: LoweringContext, x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, momentum: float, eps: float,
) -> tuple[Tensor, ...] | Declined:  # fmt: skip
    """Values normalised by the running statistics, two empty results and an empty reserve."""
    if running_mean is None or running_var is None:
        return Declined("batch norm in evaluation mode has no running statistics")
    return (*_inference(ctx, x, weight, bias, running_mean, running_var, eps), _reserve(ctx))


def _reserve(ctx: LoweringContext) -> Tensor:
    """Reserve space of cuDNN and MIOpen for the backward pass; empty on the CPU."""
    return ctx.pointwise(lambda axes: build.const(0, u8), ctx.outputs[3], "3")


@rule("aten.native_batch_norm_backward.default")
def batch_norm_backward(
    ctx: LoweringContext, grad: Tensor, x: Tensor, weight: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, save_mean: Tensor | None, save_invstd: Tensor | None, train: bool, eps: float,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Gradients of the input, the weight and the bias."""
    dtype = compute_dtype(x.dtype)
    statistics = _statistics(ctx, running_mean, running_var, save_mean, save_invstd, train, eps, dtype)
    return _gradients(ctx, grad, x, weight, statistics, train, output_mask)


@rule("aten.batch_norm_backward.default")
def batch_norm_backward_with_reserve(
    ctx: LoweringContext, grad: Tensor, x: Tensor, weight: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, save_mean: Tensor | None, save_var: Tensor | None, update: bool, eps: float,
    output_mask: Sequence[bool], reserve: Tensor,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Gradients of the input, the weight and the bias; ``save_var`` is the reciprocal deviation."""
    dtype = compute_dtype(x.dtype)
    statistics = _statistics(ctx, running_mean, running_var, save_mean, save_var, update, eps, dtype)
    return _gradients(ctx, grad, x, weight, statistics, update, output_mask)


def _gradients(
    ctx: LoweringContext,
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    statistics: tuple[ElementReader, ElementReader],
    train: bool,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """Gradients of the input, the weight and the bias, from the forward's mean and reciprocal deviation."""
    dtype = compute_dtype(x.dtype)
    over = tuple(d for d in range(x.rank) if d != 1)
    kind = ctx.temporary(dtype, (x.shape[1],))
    mean, rstd = statistics
    g, load = element_reader(grad, dtype), element_reader(x, dtype)
    number = count(ctx, [x.shape[d] for d in over], dtype)
    total = ctx.reduce("sum", x, over, dtype, body=lambda i: g(i).expr, name="sum")
    dot = ctx.reduce(
        "sum", x, over, dtype, body=lambda i: (g(i) * (load(i) - mean(_channel(i)))).expr, name="dot"
    )  # fmt: skip

    def per_channel(body: ElementReader, name: str) -> Tensor:
        return ctx.pointwise(lambda axes: body(axes).expr, kind, name)

    def input_gradient() -> Tensor:
        scale = per_channel(lambda i: affine(rstd(i), optional_element(weight, dtype, i), None), "scale")
        if not train:
            return ctx.pointwise(lambda i: (g(i) * Num(scale.load(_channel(i)))).expr, ctx.outputs[0], "0")
        shift = per_channel(lambda i: Num(total.load(i)) / number, "shift")
        slope = per_channel(lambda i: Num(dot.load(i)) * rstd(i) * rstd(i) / number, "slope")

        def body(i: Axes) -> Expr:
            c = _channel(i)
            centred = (load(i) - mean(c)) * Num(slope.load(c))
            return ((g(i) - centred - Num(shift.load(c))) * Num(scale.load(c))).expr

        return ctx.pointwise(body, ctx.outputs[0], "0")

    def weight_gradient(axes: Axes) -> Expr:
        return (Num(dot.load(axes)) * rstd(axes)).expr

    return (
        input_gradient() if output_mask[0] else None,
        ctx.pointwise(weight_gradient, ctx.outputs[1], "1") if output_mask[1] else None,
        ctx.pointwise(total.load, ctx.outputs[2], "2") if output_mask[2] else None,
    )


def _statistics(
    ctx: LoweringContext, running_mean: Tensor | None, running_var: Tensor | None, save_mean: Tensor | None,
    save_invstd: Tensor | None, train: bool, eps: float, dtype: DType,
) -> tuple[ElementReader, ElementReader]:  # fmt: skip
    """Readers of the mean and the reciprocal deviation that the forward used."""
    if train:
        if save_mean is None or save_invstd is None:
            raise ctx.error("the gradient of batch norm in training needs the saved statistics")
        return element_reader(save_mean, dtype), element_reader(save_invstd, dtype)
    if running_mean is None or running_var is None:
        raise ctx.error("the gradient of batch norm in evaluation needs the running statistics")
    variance = element_reader(running_var, dtype)
    return element_reader(running_mean, dtype), lambda axes: 1.0 / f.sqrt(variance(axes) + eps)
