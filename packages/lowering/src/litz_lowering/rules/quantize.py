"""Quantised values as plain integers and floats: ``quantized_decomposed`` and the fake-quantise operators.

Every step is rounded to the dtype in which eager holds it. Quantised tensor types stay ATen's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from litz_ir.dtypes import DType, compute_dtype, f32, f64, i64, promote
from litz_ir.loops.nodes import TensorType
from litz_ir.scalar import build
from litz_ir.scalar.expr import Expr
from litz_lowering.context import Axes, LoweringContext, Tensor
from litz_lowering.registry import rule
from litz_lowering.rules.formula import Num, fmax, fmin, maximum, minimum, rint, where


def _held(value: Num, dtype: DType) -> Num:
    """The value as a tensor of ``dtype`` holds it, in the dtype that such tensors are computed in."""
    return value.to(dtype).to(compute_dtype(dtype))


def _only(ctx: LoweringContext, value: Any, dtype: DType) -> Num:
    """A number, or the one element of a tensor, cast."""
    return Num(
        build.cast(value.load([0] * value.rank), dtype)
        if isinstance(value, Tensor)
        else ctx.number(value, dtype)
    )


def _clamp(value: Num, low: Num | float, high: Num | float) -> Num:
    return minimum(maximum(value, low), high)


def _channel(x: Tensor, axes: Axes, axis: int) -> tuple[Any, ...]:
    return (axes[axis % x.rank],)


# --- quantized_decomposed -------------------------------------------------------------------------------------


@rule(
    "quantized_decomposed.quantize_per_tensor.default",
    "quantized_decomposed.quantize_per_tensor.tensor",
    "quantized_decomposed.quantize_per_tensor.tensor2",
)
def quantize_per_tensor(
    ctx: LoweringContext, x: Tensor, scale: Any, zero_point: Any, low: Any, high: Any, dtype: DType
) -> Tensor:
    """``clamp(round(x * (1 / scale)) + zero_point, low, high)`` in ``f32``; the reciprocal is taken in ``f64``."""
    inverse = (1.0 / _only(ctx, scale, f64)).to(f32)
    zero, first, last = (_only(ctx, value, f32) for value in (zero_point, low, high))
    return ctx.pointwise(
        lambda axes: _clamp(rint(Num(build.cast(x.load(axes), f32)) * inverse) + zero, first, last).expr
    )


@rule(
    "quantized_decomposed.dequantize_per_tensor.default",
    "quantized_decomposed.dequantize_per_tensor.tensor",
    "quantized_decomposed.dequantize_per_tensor.tensor2",
)
def dequantize_per_tensor(
    ctx: LoweringContext, x: Tensor, scale: Any, zero_point: Any, *_: Any, **__: Any
) -> Tensor:
    """``(x - zero_point) * scale`` in the dtype of the result."""
    dtype = ctx.output.dtype
    zero, factor = (_only(ctx, value, compute_dtype(dtype)) for value in (zero_point, scale))
    return ctx.pointwise(lambda axes: (_held(_held(Num(x.load(axes)), dtype) - zero, dtype) * factor).expr)


@rule("quantized_decomposed.quantize_per_channel.default")
def quantize_per_channel(
    ctx: LoweringContext,
    x: Tensor,
    scales: Tensor,
    zeros: Tensor,
    axis: int,
    low: int,
    high: int,
    dtype: DType,
) -> Tensor:
    """``clamp(round(x * (1 / scale)) + zero, low, high)``, with a scale and a zero for each index of ``axis``."""
    scaled = promote(f32, scales.dtype)
    shifted = promote(scaled, zeros.dtype)

    def body(axes: Axes) -> Expr:
        at = _channel(x, axes, axis)
        inverse = _reciprocal(Num(scales.load(at)), scaled)
        value = rint(_held(Num(build.cast(x.load(axes), f32)), scaled) * inverse)
        return _clamp(_held(value, shifted) + _held(Num(zeros.load(at)), shifted), low, high).expr

    return ctx.pointwise(body)


@rule("quantized_decomposed.quantize_per_token.default")
def quantize_per_token(
    ctx: LoweringContext, x: Tensor, scales: Tensor, zeros: Tensor, low: int, high: int, dtype: DType
) -> Tensor:
    """``clamp(round(x * (1 / scale) + zero), low, high)``, with a scale and a zero for each row."""
    scaled = promote(x.dtype, scales.dtype)
    shifted = promote(scaled, zeros.dtype)

    def body(axes: Axes) -> Expr:
        inverse = _reciprocal(Num(scales.at(axes)), scaled)
        value = _held(_held(Num(x.load(axes)), scaled) * inverse, scaled)
        moved = _held(_held(value, shifted) + _held(Num(zeros.at(axes)), shifted), shifted)
        return _clamp(rint(moved), low, high).expr

    return ctx.pointwise(body)


def _reciprocal(scale: Num, dtype: DType) -> Num:
    """``1 / scale`` as a tensor of the scales' own dtype holds it, cast to ``dtype``."""
    own = scale.dtype
    return _held(_held(1.0 / _held(scale, own), own), dtype)


@rule("quantized_decomposed.dequantize_per_channel.default")
def dequantize_per_channel(
    ctx: LoweringContext, x: Tensor, scales: Tensor, zeros: Tensor | None, axis: int, *_: Any, **__: Any
) -> Tensor:
    """``(x - zero) * scale``, with a scale and a zero for each index of ``axis``."""

    def body(axes: Axes) -> Expr:
        at = _channel(x, axes, axis)
        zero = None if zeros is None else Num(zeros.load(at))
        return _dequantized(Num(x.load(axes)), Num(scales.load(at)), zero).expr

    return ctx.pointwise(body)


@rule("quantized_decomposed.dequantize_per_token.default")
def dequantize_per_token(
    ctx: LoweringContext, x: Tensor, scales: Tensor, zeros: Tensor, *_: Any, **__: Any
) -> Tensor:
    """``(x - zero) * scale``, with a scale and a zero for each row."""
    return ctx.pointwise(
        lambda axes: _dequantized(Num(x.load(axes)), Num(scales.at(axes)), Num(zeros.at(axes))).expr
    )


def _dequantized(value: Num, scale: Num, zero: Num | None) -> Num:
    if zero is not None:
        dtype = promote(value.dtype, zero.dtype)
        value = (_held(value, dtype) - _held(zero, dtype)).to(dtype)
    dtype = promote(value.dtype, scale.dtype)
    return (_held(value, dtype) * _held(scale, dtype)).to(dtype)


# --- fake quantisation ----------------------------------------------------------------------------------------


def _near(value: Num, scale: Num, zero: Num, low: int, high: int) -> tuple[Num, Num]:
    """(the value moved to its level, that it was within bounds) as ATen's kernel of one scale has it: in ``f32``."""
    level = rint(value.to(f32) * (1.0 / scale)) + zero
    held = fmin(fmax(level, float(low)), float(high))
    return (held - zero) * scale, (level >= float(low)) & (level <= float(high))


def _near_in_channel(value: Num, scale: Num, zero: Num, low: int, high: int) -> tuple[Num, Num]:
    """The same as ATen's kernel of a scale for each channel has it: the level is an integer, the zero need not be."""
    dtype = value.dtype
    scaled = value * (1.0 / scale).to(dtype)
    exact = rint(scaled) + zero.to(dtype) if zero.dtype == i64 else rint(scaled + zero.to(dtype))
    level = exact.to(i64)
    # ATen subtracts in f64; between integers the step through f32 gives the same.
    wide = dtype if zero.dtype == i64 else f64
    held = _clamp(level, low, high).to(wide)
    return (held - zero.to(wide)) * scale.to(wide), (level >= low) & (level <= high)


Near = Callable[[Num, Axes], tuple[Num, Num]]


def _fake_quantized(
    ctx: LoweringContext, x: Tensor, near: Near, enabled: Tensor | None = None
) -> tuple[Tensor, ...]:
    """(values moved to the nearest level, where the level was within bounds), by ``near`` of a value at a point."""
    dtype = compute_dtype(x.dtype)

    def moved(axes: Axes) -> Expr:
        value = Num(build.cast(x.load(axes), dtype))
        found = near(value, axes)[0].to(dtype)
        return (found if enabled is None else where(_on(enabled), found, value)).expr

    def mask(axes: Axes) -> Expr:
        inside = near(Num(build.cast(x.load(axes), dtype)), axes)[1]
        return (inside if enabled is None else inside | ~_on(enabled)).expr

    out, *more = ctx.outputs
    values = ctx.pointwise(moved, out, "0" if more else "")
    return values, *(ctx.pointwise(mask, kind, "1") for kind in more)


def _on(enabled: Tensor) -> Num:
    return Num(enabled.load([0] * enabled.rank)).ne(0)


@rule("aten.fake_quantize_per_tensor_affine_cachemask.default")
def fake_quantize_per_tensor(
    ctx: LoweringContext, x: Tensor, scale: Any, zero_point: Any, low: int, high: int
) -> tuple[Tensor, ...]:
    """(x on the levels of one scale, the mask of what was within bounds)."""
    step, zero = _only(ctx, scale, f32), _only(ctx, zero_point, f32)
    return _fake_quantized(ctx, x, lambda value, axes: _near(value, step, zero, low, high))


@rule("aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default")
def fake_quantize_per_tensor_of_tensors(
    ctx: LoweringContext, x: Tensor, scale: Tensor, zero_point: Tensor, enabled: Tensor, low: int, high: int
) -> tuple[Tensor, ...]:
    """The same with parameters that are data, and a switch that is."""
    step, zero = _only(ctx, scale, f32), _only(ctx, zero_point, f32)
    return _fake_quantized(ctx, x, lambda value, axes: _near(value, step, zero, low, high), enabled)


@rule("aten.fake_quantize_per_channel_affine_cachemask.default")
def fake_quantize_per_channel(
    ctx: LoweringContext, x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, low: int, high: int
) -> tuple[Tensor, ...]:
    """(x on the levels of its channel's scale, the mask of what was within bounds)."""

    def near(value: Num, axes: Axes) -> tuple[Num, Num]:
        at = _channel(x, axes, axis)
        zero = Num(zero_point.load(at))
        step = Num(build.cast(scale.load(at), f32))
        return _near_in_channel(value, step, zero.to(f32 if zero.dtype.is_float else i64), low, high)

    return _fake_quantized(ctx, x, near)


@rule("aten._fake_quantize_learnable_per_tensor_affine.default")
def learnable_per_tensor(
    ctx: LoweringContext,
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    low: int,
    high: int,
    grad_factor: float = 1.0,
) -> Tensor:
    """x on the levels of one scale; the zero is rounded and held within bounds."""
    step, zero = _only(ctx, scale, f32), _learned_zero(_only(ctx, zero_point, f32), low, high)
    return _fake_quantized(ctx, x, lambda value, axes: _near(value, step, zero, low, high))[0]


@rule("aten._fake_quantize_learnable_per_channel_affine.default")
def learnable_per_channel(
    ctx: LoweringContext, x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, low: int, high: int,
    grad_factor: float = 1.0,
) -> Tensor:  # fmt: skip
    """x on the levels of its channel's scale; zeros are rounded and held within bounds."""

    def near(value: Num, axes: Axes) -> tuple[Num, Num]:
        at = _channel(x, axes, axis)
        zero = _learned_zero(Num(build.cast(zero_point.load(at), f32)), low, high)
        return _near_in_channel(value, Num(build.cast(scale.load(at), f32)), zero.to(i64), low, high)

    return _fake_quantized(ctx, x, near)[0]


def _learned_zero(zero: Num, low: int, high: int) -> Num:
    return _clamp(rint(zero), float(low), float(high))


def _learned_gradients(
    ctx: LoweringContext, grad: Tensor, x: Tensor, channel: int | None, factor: float,
    near: Callable[[Num, Axes], tuple[Num, Num, Num]],
) -> tuple[Tensor, ...]:  # fmt: skip
    """The gradients of x, scale and zero; the latter two summed over all but ``channel``. ``near`` gives (value on its
    level, that it was within bounds, scale)."""
    to_x, to_scale, to_zero = ctx.outputs
    assert to_x is not None and to_scale is not None and to_zero is not None, "it returns three tensors"
    dtype = compute_dtype(x.dtype)

    def parts(axes: Axes) -> tuple[Num, Num, Num, Num, Num]:
        value, dy = (Num(build.cast(t.load(axes), dtype)) for t in (x, grad))
        return value, dy, *near(value, axes)

    def for_x(axes: Axes) -> Expr:
        _, dy, _, inside, _ = parts(axes)
        return where(inside, dy, 0.0).expr

    def for_scale(axes: Axes) -> Num:
        value, dy, found, inside, scale = parts(axes)
        return dy * (found.to(dtype) - where(inside, value, 0.0)) / scale.to(dtype) * factor

    def for_zero(axes: Axes) -> Num:
        _, dy, _, inside, scale = parts(axes)
        return where(inside, 0.0 * dy, -dy * scale.to(dtype) * factor)

    over = [size for dim, size in enumerate(x.shape) if dim != channel]

    def total(each: Callable[[Axes], Num], kind: TensorType, name: str) -> Tensor:
        def body(outer: Axes, inner: Axes) -> Expr:
            index = list(inner)
            if channel is not None:
                index.insert(channel, outer[0])
            return each(tuple(index)).to(kind.dtype).expr

        return ctx.reduction("sum", body, over, (kind,), (name,))[0]

    return ctx.pointwise(for_x, to_x, "0"), total(for_scale, to_scale, "1"), total(for_zero, to_zero, "2")


@rule("aten._fake_quantize_learnable_per_tensor_affine_backward.default")
def learnable_per_tensor_backward(
    ctx: LoweringContext, grad: Tensor, x: Tensor, scale: Tensor, zero_point: Tensor, low: int, high: int,
    grad_factor: float = 1.0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The gradients of x, of the one scale and of the one zero."""
    step, zero = _only(ctx, scale, f32), _learned_zero(_only(ctx, zero_point, f32), low, high)
    return _learned_gradients(
        ctx, grad, x, None, grad_factor, lambda value, axes: (*_near(value, step, zero, low, high), step)
    )


@rule("aten._fake_quantize_learnable_per_channel_affine_backward.default")
def learnable_per_channel_backward(
    ctx: LoweringContext, grad: Tensor, x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, low: int,
    high: int, grad_factor: float = 1.0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The gradients of x, and of the scale and the zero of each channel."""

    def near(value: Num, axes: Axes) -> tuple[Num, Num, Num]:
        at = _channel(x, axes, axis)
        step = Num(build.cast(scale.load(at), f32))
        zero = _learned_zero(Num(build.cast(zero_point.load(at), f32)), low, high)
        return *_near_in_channel(value, step, zero.to(i64), low, high), step

    return _learned_gradients(ctx, grad, x, axis % x.rank, grad_factor, near)
