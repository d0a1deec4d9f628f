"""Layer, group and RMS norms, with two-pass statistics in the dtype that eager computes in."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from litz_ir.device import CPU
from litz_ir.dtypes import DType, compute_dtype
from litz_ir.loops import TensorType
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Size, add, floordiv, mul
from litz_lowering.contexts.context import Axes, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num
from litz_lowering.rules.reductions.reduce import count
from litz_lowering.rules.reductions.variance import moments
from litz_lowering.types.torch_types import torch_dtype

ElementReader = Callable[[Axes], Num]


def element_reader(x: Tensor, dtype: DType) -> ElementReader:
    """Reader of elements of ``x``, broadcast and cast to ``dtype``."""
    return lambda index: Num(build.cast(x.at(index), dtype))


def tensor_types(ctx: LoweringContext, number: int) -> list[TensorType]:
    """Types of the first ``number`` results, all of them tensors; raises an error where one is None."""
    found = [kind for kind in ctx.outputs[:number] if kind is not None]
    if len(found) != number:
        raise ctx.error(f"expected {number} tensor results")
    return found


def affine(value: Num, weight: Num | None, bias: Num | None) -> Num:
    """``value * weight + bias``, without the factors that are None."""
    if weight is not None:
        value = value * weight
    return value if bias is None else value + bias


def optional_element(x: Tensor | None, dtype: DType, index: Axes) -> Num | None:
    """Element of an optional tensor, cast to ``dtype``."""
    return None if x is None else element_reader(x, dtype)(index)


# --- layer norm


@rule("aten.native_layer_norm.default")
def layer_norm(
    ctx: LoweringContext, x: Tensor, normalized_shape: Sequence[Size], weight: Tensor | None, bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Normalised values, mean and reciprocal deviation over the trailing dimensions."""
    out, mean_type, rstd_type = tensor_types(ctx, 3)
    dtype = compute_dtype(x.dtype)
    mean, variance = moments(ctx, x, _trailing(x, normalized_shape), True, 0, dtype)
    rstd = ctx.pointwise(lambda axes: f.rsqrt(Num(variance.load(axes)) + eps).expr, variance.type, "rstd")
    load, outer_rank = element_reader(x, dtype), x.rank - len(normalized_shape)

    def body(axes: Axes) -> Expr:
        value = (load(axes) - Num(mean.at(axes))) * Num(rstd.at(axes))
        inner = axes[outer_rank:]
        return affine(
            value, optional_element(weight, dtype, inner), optional_element(bias, dtype, inner)
        ).expr

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
    g, load, m, r = (element_reader(t, dtype) for t in (grad, x, mean, rstd))

    def hat(index: Axes) -> Num:
        return (load(index) - m(index)) * r(index)

    def weighted(index: Axes) -> Num:
        w = optional_element(weight, dtype, index[len(outer) :])
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
    """Normalised values and reciprocal root mean square over as many trailing dimensions as ``normalized_shape``.

    The sizes in ``normalized_shape`` are not used, because the operator takes plain integers and torch passes
    symbolic ones as their bits.
    """
    out, rstd_type = tensor_types(ctx, 2)
    dtype = compute_dtype(x.dtype)
    small = torch.finfo(torch_dtype(dtype)).eps if eps is None else eps
    number = count(ctx, x.shape[x.rank - len(normalized_shape) :], dtype)
    load = element_reader(x, dtype)
    squares = ctx.reduce(
        "sum", x, _trailing(x, normalized_shape), dtype, body=lambda i: (load(i) * load(i)).expr, keepdim=True,
        name="squares",
    )  # fmt: skip
    rstd = ctx.pointwise(
        lambda axes: f.rsqrt(Num(squares.load(axes)) / number + small).expr, squares.type, "rstd"
    )  # fmt: skip

    def body(axes: Axes) -> Expr:
        inner = axes[x.rank - len(normalized_shape) :]
        return affine(load(axes) * Num(rstd.at(axes)), optional_element(weight, dtype, inner), None).expr

    return ctx.pointwise(body, out, "0"), ctx.pointwise(rstd.load, rstd_type, "1")


# --- group norm


@rule("aten.native_group_norm.default")
def group_norm(
    ctx: LoweringContext, x: Tensor, weight: Tensor | None, bias: Tensor | None, N: Size, C: Size, HxW: Size,
    group: int, eps: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Normalised values, mean and reciprocal deviation over each group of channels and all positions."""
    out, mean_type, rstd_type = tensor_types(ctx, 3)
    dtype, width = compute_dtype(x.dtype), floordiv(C, group)
    number = count(ctx, [width, *x.shape[2:]], dtype)
    load = element_reader(x, dtype)
    sums = _sums_by_channel if _has_adjacent_channels(x, group) else _sums_by_group
    total, by = sums(ctx, x, group, "sum", lambda axes, _: load(axes))
    mean = ctx.pointwise(lambda axes: (Num(total.load(axes)) / number).expr, total.type, "mean")

    def square(axes: Axes, at: Axes) -> Num:
        difference = load(axes) - Num(mean.load(at))
        return difference * difference

    squares, _ = sums(ctx, x, group, "squares", square)
    rstd = ctx.pointwise(
        lambda axes: f.rsqrt(Num(squares.load(axes)) / number + eps).expr, squares.type, "rstd"
    )

    def body(axes: Axes) -> Expr:
        at = by(axes)
        value = (load(axes) - Num(mean.load(at))) * Num(rstd.load(at))
        channel = (axes[1],)
        return affine(
            value, optional_element(weight, dtype, channel), optional_element(bias, dtype, channel)
        ).expr

    def of_group(axes: Axes) -> Axes:
        """Return the element of the sums that a group has."""
        return axes if sums is _sums_by_group else (axes[0], mul(axes[1], width))

    return (
        ctx.pointwise(body, out, "0"),
        ctx.pointwise(lambda axes: mean.load(of_group(axes)), mean_type, "1"),
        ctx.pointwise(lambda axes: rstd.load(of_group(axes)), rstd_type, "2"),
    )


_Summand = Callable[[Axes, Axes], Num]
"""Function from an element of the input, and the element of the sums that its group has, to what is summed."""

_GroupOf = Callable[[Axes], Axes]
"""Function from an element of the input to the element of a tensor of sums that its group has."""


def _has_adjacent_channels(x: Tensor, group: int) -> bool:
    """True where a CPU reads channels of several groups next to one another.

    A register then has channels of a group each only if it sums them apart.
    """
    return x.device == CPU and x.rank > 2 and group > 1 and x.type.layout.strides[1] == 1


def _sums_by_group(
    ctx: LoweringContext, x: Tensor, group: int, name: str, element: _Summand
) -> tuple[Tensor, _GroupOf]:
    """Sum over each group, as a tensor with an element for each sample and group."""
    width = floordiv(x.shape[1], group)
    kind = ctx.temporary(compute_dtype(x.dtype), (x.shape[0], group))

    def body(axes: Axes, inner: Axes) -> Expr:
        return element((axes[0], add(mul(axes[1], width), inner[0]), *inner[1:]), axes).expr

    (total,) = ctx.reduction("sum", body, (width, *x.shape[2:]), (kind,), (name,))
    return total, lambda axes: (axes[0], floordiv(axes[1], width))


def _sums_by_channel(
    ctx: LoweringContext, x: Tensor, group: int, name: str, element: _Summand
) -> tuple[Tensor, _GroupOf]:
    """Sum over each channel and then over each group, as a tensor with an element for each sample and channel."""
    width = floordiv(x.shape[1], group)
    kind = ctx.temporary(compute_dtype(x.dtype), x.shape[:2])
    (channels,) = ctx.reduction(
        "sum",
        lambda axes, inner: element((*axes, *inner), axes).expr,
        x.shape[2:],
        (kind,),
        (f"channel_{name}",),
    )

    def body(axes: Axes, inner: Axes) -> Expr:
        return channels.load((axes[0], add(mul(floordiv(axes[1], width), width), inner[0])))

    (total,) = ctx.reduction("sum", body, (width,), (kind,), (name,))
    return total, lambda axes: (axes[0], axes[1])
