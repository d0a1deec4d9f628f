"""Layer, group, batch and RMS norms, with two-pass statistics in the dtype that eager computes in."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from litz_ir.dtypes import DType, compute_dtype, u8
from litz_ir.loops import TensorType
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, add, floordiv, mul
from litz_lowering.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.registry import rule
from litz_lowering.rules import formula as f
from litz_lowering.rules.formula import Num
from litz_lowering.rules.reduce import at_least_zero, count, moments
from litz_lowering.torch_types import torch_dtype

ElementReader = Callable[[Axes], Num]


def _reader(x: Tensor, dtype: DType) -> ElementReader:
    """Reader of elements of ``x``, broadcast and cast to ``dtype``."""
    return lambda index: Num(build.cast(x.at(index), dtype))


def _types(ctx: LoweringContext, number: int) -> list[TensorType]:
    found = [kind for kind in ctx.outputs[:number] if kind is not None]
    if len(found) != number:
        raise ctx.error(f"expected {number} tensor results")
    return found


def _affine(value: Num, weight: Num | None, bias: Num | None) -> Num:
    if weight is not None:
        value = value * weight
    return value if bias is None else value + bias


def _optional(x: Tensor | None, dtype: DType, index: Axes) -> Num | None:
    return None if x is None else _reader(x, dtype)(index)


# --- layer norm


@rule("aten.native_layer_norm.default")
def layer_norm(
    ctx: LoweringContext, x: Tensor, normalized_shape: Sequence[Size], weight: Tensor | None, bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """(normalised, mean, reciprocal deviation) over the trailing dimensions."""
    out, mean_type, rstd_type = _types(ctx, 3)
    dtype = compute_dtype(x.dtype)
    mean, variance = moments(ctx, x, _trailing(x, normalized_shape), True, 0, dtype)
    rstd = ctx.pointwise(lambda axes: f.rsqrt(Num(variance.load(axes)) + eps).expr, variance.type, "rstd")
    load, outer_rank = _reader(x, dtype), x.rank - len(normalized_shape)

    def body(axes: Axes) -> Expr:
        value = (load(axes) - Num(mean.at(axes))) * Num(rstd.at(axes))
        inner = axes[outer_rank:]
        return _affine(value, _optional(weight, dtype, inner), _optional(bias, dtype, inner)).expr

    return (
        ctx.pointwise(body, out, "0"),
        ctx.pointwise(mean.load, mean_type, "1"),
        ctx.pointwise(rstd.load, rstd_type, "2"),
    )


def _trailing(x: Tensor, normalized_shape: Sequence[Size]) -> tuple[int, ...]:
    return tuple(range(x.rank - len(normalized_shape), x.rank))


@rule("aten.native_layer_norm_backward.default")
def layer_norm_backward(
    ctx: LoweringContext, grad: Tensor, x: Tensor, normalized_shape: Sequence[Size], mean: Tensor, rstd: Tensor,
    weight: Tensor | None, bias: Tensor | None, output_mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Gradients of the input, the weight and the bias."""
    dtype = compute_dtype(x.dtype)
    inner, outer = _trailing(x, normalized_shape), tuple(range(x.rank - len(normalized_shape)))
    g, load, m, r = (_reader(t, dtype) for t in (grad, x, mean, rstd))

    def hat(index: Axes) -> Num:
        return (load(index) - m(index)) * r(index)

    def weighted(index: Axes) -> Num:
        w = _optional(weight, dtype, index[len(outer) :])
        return g(index) if w is None else g(index) * w

    def input_gradient() -> Tensor:
        number = count(ctx, normalized_shape, dtype)
        plain = ctx.reduce(
            "sum", x, inner, dtype, body=lambda i: weighted(i).expr, keepdim=True, name="sum"
        )  # fmt: skip
        dot = ctx.reduce(
            "sum", x, inner, dtype, body=lambda i: (weighted(i) * hat(i)).expr, keepdim=True, name="dot"
        )  # fmt: skip

        def body(axes: Axes) -> Expr:
            shift = (Num(plain.at(axes)) + hat(axes) * Num(dot.at(axes))) / number
            return (r(axes) * (weighted(axes) - shift)).expr

        return ctx.pointwise(body, ctx.outputs[0], "0")

    def total(position: int, body: ElementReader) -> Tensor:
        name = f"{position}_sum"
        summed = ctx.reduce("sum", x, outer, dtype, body=lambda i: body(i).expr, name=name)
        return ctx.pointwise(summed.load, ctx.outputs[position], str(position))

    return (
        input_gradient() if output_mask[0] else None,
        total(1, lambda i: g(i) * hat(i)) if output_mask[1] else None,
        total(2, g) if output_mask[2] else None,
    )


# --- root-mean-square norm


@rule("aten._fused_rms_norm.default")
def rms_norm(
    ctx: LoweringContext,
    x: Tensor,
    normalized_shape: Sequence[Size],
    weight: Tensor | None,
    eps: float | None,
) -> tuple[Tensor, ...]:
    """(normalised, reciprocal root mean square) over as many trailing dimensions as ``normalized_shape`` has.

    The sizes in ``normalized_shape`` are not used, because the operator takes plain integers and torch passes
    symbolic ones as their bits.
    """
    out, rstd_type = _types(ctx, 2)
    dtype = compute_dtype(x.dtype)
    small = torch.finfo(torch_dtype(x.dtype)).eps if eps is None else eps
    number = count(ctx, x.shape[x.rank - len(normalized_shape) :], dtype)
    load = _reader(x, dtype)
    squares = ctx.reduce(
        "sum", x, _trailing(x, normalized_shape), dtype, body=lambda i: (load(i) * load(i)).expr, keepdim=True,
        name="squares",
    )  # fmt: skip
    rstd = ctx.pointwise(
        lambda axes: f.rsqrt(Num(squares.load(axes)) / number + small).expr, squares.type, "rstd"
    )  # fmt: skip

    def body(axes: Axes) -> Expr:
        inner = axes[x.rank - len(normalized_shape) :]
        return _affine(load(axes) * Num(rstd.at(axes)), _optional(weight, dtype, inner), None).expr

    return ctx.pointwise(body, out, "0"), ctx.pointwise(rstd.load, rstd_type, "1")


# --- group norm


@rule("aten.native_group_norm.default")
def group_norm(
    ctx: LoweringContext, x: Tensor, weight: Tensor | None, bias: Tensor | None, N: Size, C: Size, HxW: Size,
    group: int, eps: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """(normalised, mean, reciprocal deviation) over each group of channels and all positions."""
    out, mean_type, rstd_type = _types(ctx, 3)
    dtype, width = compute_dtype(x.dtype), floordiv(C, group)
    over = [width, *x.shape[2:]]
    number = count(ctx, over, dtype)
    load = _reader(x, dtype)

    def element(axes: Axes, inner: Axes) -> Num:
        return load((axes[0], add(mul(axes[1], width), inner[0]), *inner[1:]))

    kind = ctx.temporary(dtype, mean_type.shape)
    total = ctx.reduction("sum", lambda axes, inner: element(axes, inner).expr, over, (kind,), ("sum",))[0]
    mean = ctx.pointwise(lambda axes: (Num(total.load(axes)) / number).expr, kind, "mean")

    def square(axes: Axes, inner: Axes) -> Expr:
        difference = element(axes, inner) - Num(mean.load(axes))
        return (difference * difference).expr

    squares = ctx.reduction("sum", square, over, (kind,), ("squares",))[0]
    rstd = ctx.pointwise(lambda axes: f.rsqrt(Num(squares.load(axes)) / number + eps).expr, kind, "rstd")

    def body(axes: Axes) -> Expr:
        at = (axes[0], floordiv(axes[1], width))
        value = (load(axes) - Num(mean.load(at))) * Num(rstd.load(at))
        channel = (axes[1],)
        return _affine(value, _optional(weight, dtype, channel), _optional(bias, dtype, channel)).expr

    return (
        ctx.pointwise(body, out, "0"),
        ctx.pointwise(mean.load, mean_type, "1"),
        ctx.pointwise(rstd.load, rstd_type, "2"),
    )


# --- batch norm


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
        return _affine(rstd(axes), _optional(weight, dtype, axes), None)

    def shift(axes: Axes) -> Expr:
        moved = mean(axes) * Num(alpha.load(axes))
        offset = _optional(bias, dtype, axes)
        return (-moved if offset is None else offset - moved).expr

    alpha = ctx.pointwise(lambda axes: scale(axes).expr, kind, "alpha")
    beta = ctx.pointwise(shift, kind, "beta")
    load = _reader(x, dtype)

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
    """(normalised by the running statistics, and two results that eager leaves empty)."""
    dtype = compute_dtype(x.dtype)
    _, first, second = _types(ctx, 3)
    variance = _reader(var, dtype)
    out = _scaled_by_channel(
        ctx, x, weight, bias, _reader(mean, dtype), lambda axes: 1.0 / f.sqrt(variance(axes) + eps), dtype
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
    """((normalised, mean, reciprocal deviation), mean, biased variance, reduced sizes)."""
    dtype = compute_dtype(x.dtype)
    over = tuple(d for d in range(x.rank) if d != 1)
    wide_mean, variance = moments(ctx, x, over, False, 0, dtype)
    kind = variance.type

    def channel_index(axes: Axes) -> Axes:
        return tuple(axes[0] if d == 1 else 0 for d in range(x.rank))

    mean = ctx.pointwise(lambda axes: wide_mean.at(channel_index(axes)), kind, "average")
    rstd = ctx.pointwise(lambda axes: (1.0 / f.sqrt(Num(variance.load(axes)) + eps)).expr, kind, "rstd")
    out = _scaled_by_channel(ctx, x, weight, bias, _reader(mean, dtype), _reader(rstd, dtype), dtype)
    _, first, second = _types(ctx, 3)
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
    """(normalised, mean, reciprocal deviation, new running mean, new running variance)."""
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
        before, result = _reader(old, dtype), len(ctx.outputs) - 2 + position
        return ctx.pointwise(
            lambda axes: (momentum * new(axes) + (1.0 - momentum) * before(axes)).expr,
            ctx.outputs[result], str(result),
        )  # fmt: skip

    def unbiased_variance(axes: Axes) -> Num:
        return Num(variance.load(axes)) * unbiased

    return moved(0, running[0], _reader(mean, dtype)), moved(1, running[1], unbiased_variance)


@rule("aten._batch_norm_with_update_functional.default")
def batch_norm_with_update(
    ctx: LoweringContext, x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor,
    running_var: Tensor, momentum: float, eps: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """(normalised, mean, reciprocal deviation, empty reserve, new running mean, new running variance)."""
    results, mean, variance, elements = _training(ctx, x, weight, bias, eps)
    moved = _updated_statistics(ctx, (running_mean, running_var), mean, variance, elements, momentum)
    return (*results, _reserve(ctx), *moved)


@rule("aten._batch_norm_no_update.default")
def batch_norm_without_update(
    ctx: LoweringContext, x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, momentum: float, eps: float,
) -> tuple[Tensor, ...] | Declined:  # fmt: skip
    """(normalised by the running statistics, two empty results, empty reserve)."""
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
    g, load = _reader(grad, dtype), _reader(x, dtype)
    number = count(ctx, [x.shape[d] for d in over], dtype)
    total = ctx.reduce("sum", x, over, dtype, body=lambda i: g(i).expr, name="sum")
    dot = ctx.reduce(
        "sum", x, over, dtype, body=lambda i: (g(i) * (load(i) - mean(_channel(i)))).expr, name="dot"
    )  # fmt: skip

    def per_channel(body: ElementReader, name: str) -> Tensor:
        return ctx.pointwise(lambda axes: body(axes).expr, kind, name)

    def input_gradient() -> Tensor:
        scale = per_channel(lambda i: _affine(rstd(i), _optional(weight, dtype, i), None), "scale")
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
        return _reader(save_mean, dtype), _reader(save_invstd, dtype)
    if running_mean is None or running_var is None:
        raise ctx.error("the gradient of batch norm in evaluation needs the running statistics")
    variance = _reader(running_var, dtype)
    return _reader(running_mean, dtype), lambda axes: 1.0 / f.sqrt(variance(axes) + eps)
