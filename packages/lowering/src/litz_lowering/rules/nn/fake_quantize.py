"""Fake quantisation: values moved to the nearest quantised level, with fixed or learned scales and zeros."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from litz_ir.dtypes import compute_dtype, f32, f64, i64
from litz_ir.loops import TensorType
from litz_ir.scalar import Expr, build
from litz_lowering.contexts.context import Axes, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions.formula import Num, fmax, fmin, rint, where
from litz_lowering.rules.nn.quantize import channel_index, clamped_to, only_element


def _level_in_tensor(value: Num, scale: Num, zero: Num, low: int, high: int) -> tuple[Num, Num]:
    """Value at its level, and True where the level is in range, in ``f32``, as in ATen's per-tensor kernel."""
    level = rint(value.to(f32) * (1.0 / scale)) + zero
    clamped = fmin(fmax(level, float(low)), float(high))
    return (clamped - zero) * scale, (level >= float(low)) & (level <= float(high))


def _level_in_channel(value: Num, scale: Num, zero: Num, low: int, high: int) -> tuple[Num, Num]:
    """Value at its level, and True where the level is in range, as in ATen's per-channel kernel.

    The level is an integer; the zero need not be one.
    """
    dtype = value.dtype
    scaled = value * (1.0 / scale).to(dtype)
    exact = rint(scaled) + zero.to(dtype) if zero.dtype == i64 else rint(scaled + zero.to(dtype))
    level = exact.to(i64)
    # ATen subtracts in f64; between integers the step through f32 gives the same.
    wide = dtype if zero.dtype == i64 else f64
    clamped = clamped_to(level, low, high).to(wide)
    return (clamped - zero.to(wide)) * scale.to(wide), (level >= low) & (level <= high)


_Near = Callable[[Num, Axes], tuple[Num, Num]]


def _fake_quantized(
    ctx: LoweringContext, x: Tensor, near: _Near, enabled: Tensor | None = None
) -> tuple[Tensor, ...]:
    """Values at the nearest level, and True where the level is in range, by ``near`` of a value at a point."""
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
    """Values of x at the levels of one scale, and the mask of elements in range."""
    step, zero = only_element(ctx, scale, f32), only_element(ctx, zero_point, f32)
    return _fake_quantized(ctx, x, lambda value, axes: _level_in_tensor(value, step, zero, low, high))


@rule("aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default")
def fake_quantize_per_tensor_of_tensors(
    ctx: LoweringContext, x: Tensor, scale: Tensor, zero_point: Tensor, enabled: Tensor, low: int, high: int
) -> tuple[Tensor, ...]:
    """Values of x at the levels of one scale, and the mask of elements in range.

    Parameters and the flag that enables quantisation are tensors.
    """
    step, zero = only_element(ctx, scale, f32), only_element(ctx, zero_point, f32)
    return _fake_quantized(
        ctx, x, lambda value, axes: _level_in_tensor(value, step, zero, low, high), enabled
    )


@rule("aten.fake_quantize_per_channel_affine_cachemask.default")
def fake_quantize_per_channel(
    ctx: LoweringContext, x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, low: int, high: int
) -> tuple[Tensor, ...]:
    """Values of x at the levels of its channel's scale, and the mask of elements in range."""

    def near(value: Num, axes: Axes) -> tuple[Num, Num]:
        at = channel_index(x, axes, axis)
        zero = Num(zero_point.load(at))
        step = Num(build.cast(scale.load(at), f32))
        return _level_in_channel(value, step, zero.to(f32 if zero.dtype.is_float else i64), low, high)

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
    """x at the levels of one scale; the zero is rounded and clamped."""
    step, zero = only_element(ctx, scale, f32), _learned_zero(only_element(ctx, zero_point, f32), low, high)
    return _fake_quantized(ctx, x, lambda value, axes: _level_in_tensor(value, step, zero, low, high))[0]


@rule("aten._fake_quantize_learnable_per_channel_affine.default")
def learnable_per_channel(
    ctx: LoweringContext, x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, low: int, high: int,
    grad_factor: float = 1.0,
) -> Tensor:  # fmt: skip
    """x at the levels of its channel's scale; zeros are rounded and clamped."""

    def near(value: Num, axes: Axes) -> tuple[Num, Num]:
        at = channel_index(x, axes, axis)
        zero = _learned_zero(Num(build.cast(zero_point.load(at), f32)), low, high)
        return _level_in_channel(value, Num(build.cast(scale.load(at), f32)), zero.to(i64), low, high)

    return _fake_quantized(ctx, x, near)[0]


def _learned_zero(zero: Num, low: int, high: int) -> Num:
    return clamped_to(rint(zero), float(low), float(high))


def _learned_gradients(
    ctx: LoweringContext, grad: Tensor, x: Tensor, channel: int | None, factor: float,
    near: Callable[[Num, Axes], tuple[Num, Num, Num]],
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gradients of x, scale and zero; the latter two are summed over all dimensions except ``channel``.

    ``near`` gives (value at its level, True where it is in range, scale).
    """
    to_x, to_scale, to_zero = ctx.outputs
    assert to_x is not None and to_scale is not None and to_zero is not None, (
        "the operator returns three tensors"
    )
    dtype = compute_dtype(x.dtype)

    def at_point(axes: Axes) -> tuple[Num, Num, Num, Num, Num]:
        value, dy = (Num(build.cast(t.load(axes), dtype)) for t in (x, grad))
        return value, dy, *near(value, axes)

    def for_x(axes: Axes) -> Expr:
        _, dy, _, inside, _ = at_point(axes)
        return where(inside, dy, 0.0).expr

    def for_scale(axes: Axes) -> Num:
        value, dy, found, inside, scale = at_point(axes)
        return dy * (found.to(dtype) - where(inside, value, 0.0)) / scale.to(dtype) * factor

    def for_zero(axes: Axes) -> Num:
        _, dy, _, inside, scale = at_point(axes)
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
    """Gradients of x, of the scale and of the zero."""
    step, zero = only_element(ctx, scale, f32), _learned_zero(only_element(ctx, zero_point, f32), low, high)
    return _learned_gradients(
        ctx,
        grad,
        x,
        None,
        grad_factor,
        lambda value, axes: (*_level_in_tensor(value, step, zero, low, high), step),
    )


@rule("aten._fake_quantize_learnable_per_channel_affine_backward.default")
def learnable_per_channel_backward(
    ctx: LoweringContext, grad: Tensor, x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, low: int,
    high: int, grad_factor: float = 1.0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gradients of x, and of the scale and the zero of each channel."""

    def near(value: Num, axes: Axes) -> tuple[Num, Num, Num]:
        at = channel_index(x, axes, axis)
        step = Num(build.cast(scale.load(at), f32))
        zero = _learned_zero(Num(build.cast(zero_point.load(at), f32)), low, high)
        return *_level_in_channel(value, step, zero.to(i64), low, high), step

    return _learned_gradients(ctx, grad, x, axis % x.rank, grad_factor, near)
