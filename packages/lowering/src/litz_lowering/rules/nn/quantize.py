"""Quantised values as plain integers and floats: the operators of ``quantized_decomposed``.

Every step is rounded to the dtype in which eager stores it. Tensors of quantised dtypes fall back to ATen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from litz_ir.dtypes import DType, b1, compute_dtype, f32, f64, i8, i16, i32, i64, promote, u8
from litz_ir.scalar import Expr, build
from litz_ir.symbols import Predicate, Size, floordiv, product, prove
from litz_lowering.contexts.context import Axes, Declined, LoweringContext, Tensor
from litz_lowering.contexts.registry import rule
from litz_lowering.expressions.formula import Num, index, isnan, maximum, minimum, rint
from litz_lowering.expressions.index_maps import reshaped
from litz_lowering.rules.reductions.reduce import require_elements


def _rounded(value: Num, dtype: DType) -> Num:
    """Value rounded to ``dtype``, in the dtype in which that is computed."""
    return value.to(dtype).to(compute_dtype(dtype))


def only_element(ctx: LoweringContext, value: Any, dtype: DType) -> Num:
    """Number, or the element of a one-element tensor, cast to ``dtype``."""
    return Num(
        build.cast(value.load([0] * value.rank), dtype)
        if isinstance(value, Tensor)
        else ctx.number(value, dtype)
    )


def clamped_to(value: Num, low: Num | float, high: Num | float) -> Num:
    """Value clamped to two bounds."""
    return minimum(maximum(value, low), high)


def channel_index(x: Tensor, axes: Axes, axis: int) -> tuple[Any, ...]:
    """Index into the parameters of channels, which are along dimension ``axis`` of ``x``."""
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
    """``clamp(round(x * (1 / scale)) + zero_point, low, high)`` in ``f32``; the reciprocal is computed in ``f64``."""
    inverse = (1.0 / only_element(ctx, scale, f64)).to(f32)
    zero, first, last = (only_element(ctx, value, f32) for value in (zero_point, low, high))
    return ctx.pointwise(
        lambda axes: clamped_to(rint(Num(build.cast(x.load(axes), f32)) * inverse) + zero, first, last).expr
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
    zero, factor = (only_element(ctx, value, compute_dtype(dtype)) for value in (zero_point, scale))
    return ctx.pointwise(
        lambda axes: (_rounded(_rounded(Num(x.load(axes)), dtype) - zero, dtype) * factor).expr
    )


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
        at = channel_index(x, axes, axis)
        inverse = _reciprocal(Num(scales.load(at)), scaled)
        value = rint(_rounded(Num(build.cast(x.load(axes), f32)), scaled) * inverse)
        return clamped_to(_rounded(value, shifted) + _rounded(Num(zeros.load(at)), shifted), low, high).expr

    return ctx.pointwise(body)


@rule("quantized_decomposed.quantize_per_token.default")
def quantize_per_token(
    ctx: LoweringContext, x: Tensor, scales: Tensor, zeros: Tensor, low: int, high: int, dtype: DType
) -> Tensor:
    """``clamp(round(x * (1 / scale) + zero), low, high)``, with a scale and a zero for each row."""
    return ctx.pointwise(
        lambda axes: _level(Num(x.load(axes)), Num(scales.at(axes)), Num(zeros.at(axes)), low, high).expr
    )


def _level(value: Num, scale: Num, zero: Num, low: int, high: int) -> Num:
    """``clamp(round(value * (1 / scale) + zero), low, high)``."""
    scaled = promote(value.dtype, scale.dtype)
    shifted = promote(scaled, zero.dtype)
    moved = _rounded(_rounded(value, scaled) * _reciprocal(scale, scaled), scaled)
    level = rint(_rounded(_rounded(moved, shifted) + _rounded(zero, shifted), shifted))
    return clamped_to(level, *(_rounded(level.like(bound), shifted) for bound in (low, high)))


def _reciprocal(scale: Num, dtype: DType) -> Num:
    """``1 / scale`` rounded to the dtype of the scales, cast to ``dtype``."""
    own = scale.dtype
    return _rounded(_rounded(1.0 / _rounded(scale, own), own), dtype)


@rule("quantized_decomposed.dequantize_per_channel.default")
def dequantize_per_channel(
    ctx: LoweringContext, x: Tensor, scales: Tensor, zeros: Tensor | None, axis: int, *_: Any, **__: Any
) -> Tensor:
    """``(x - zero) * scale``, with a scale and a zero for each index of ``axis``."""

    def body(axes: Axes) -> Expr:
        at = channel_index(x, axes, axis)
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
        value = (_rounded(value, dtype) - _rounded(zero, dtype)).to(dtype)
    dtype = promote(value.dtype, scale.dtype)
    return (_rounded(value, dtype) * _rounded(scale, dtype)).to(dtype)


# --- groups within channels -----------------------------------------------------------------------------------


_Group = Callable[[Tensor, Axes], Num]
"""Reader of a group parameter for the element at a point."""


def _groups(
    ctx: LoweringContext, x: Tensor, scales: Tensor, parameters: Sequence[Tensor], size: Size
) -> _Group | Declined:
    """Reader of ``parameters`` of groups of ``size`` elements in each row of ``x`` (rank 2).

    Parameters are listed row-major, with one per group or one for all.
    """
    rows, columns = x.shape
    fits = prove(Predicate("le", size, columns), ctx.builder.symbols.ranges())
    if fits is None:
        return Declined("the size of groups may exceed the row length")
    # Eager treats a single column of GPTQ scales as one group per row.
    size = columns if not fits and scales.rank and scales.shape[-1] == 1 else size
    groups = (rows, floordiv(columns, size))
    for parameter in parameters:
        if parameter.numel not in (1, product(groups)):
            matches = index(parameter.numel).eq(index(product(groups)))
            ctx.check(matches.expr, "the scales and the zeros of groups must be as many as the groups")

    def read(parameter: Tensor, axes: Axes) -> Num:
        if parameter.numel == 1:
            return Num(parameter.load([0] * parameter.rank))
        return Num(parameter.load(reshaped((axes[0], floordiv(axes[1], size)), groups, parameter.shape)))

    return read


@rule("quantized_decomposed.quantize_per_channel_group.default")
def quantize_per_channel_group(
    ctx: LoweringContext, x: Tensor, scales: Tensor, zeros: Tensor, low: int, high: int, dtype: DType,
    group_size: Size = 128,
) -> Tensor | Declined:  # fmt: skip
    """``clamp(round(x * (1 / scale) + zero), low, high)``, with a scale and a zero for each group; NaN is an
    error."""
    group = _groups(ctx, x, scales, (scales, zeros), group_size)
    if isinstance(group, Declined):
        return group
    has_nan = ctx.reduce("any", x, (0, 1), b1, body=lambda axes: isnan(Num(x.load(axes))).expr, name="nan")
    ctx.check((~Num(has_nan.load(()))).expr, "to_quant must not contain NaNs", "AssertionError")
    return ctx.pointwise(
        lambda axes: _level(Num(x.load(axes)), group(scales, axes), group(zeros, axes), low, high).expr
    )


@rule("quantized_decomposed.dequantize_per_channel_group.default")
def dequantize_per_channel_group(
    ctx: LoweringContext, x: Tensor, scales: Tensor, zeros: Tensor | None, low: int, high: int, dtype: DType,
    group_size: Size = 128, *_: Any, **__: Any,
) -> Tensor | Declined:  # fmt: skip
    """``(x - zero) * scale``, with a scale and a zero for each group."""
    group = _groups(ctx, x, scales, (scales,) if zeros is None else (scales, zeros), group_size)
    if isinstance(group, Declined):
        return group

    def body(axes: Axes) -> Expr:
        zero = None if zeros is None else group(zeros, axes)
        return _dequantized(Num(x.load(axes)), group(scales, axes), zero).expr

    return ctx.pointwise(body)


# --- parameters from data -------------------------------------------------------------------------------------


_CHOSEN_FOR = (u8, i8, i16, i32)


def _extremes(ctx: LoweringContext, x: Tensor) -> tuple[Num, Num]:
    """Values ``min(x, 0)`` and ``max(x, 0)`` over all elements, in the dtype in which ``x`` is computed."""
    over, wide = range(x.rank), compute_dtype(x.dtype)
    require_elements(ctx, x, over, named=False)
    low = ctx.reduce("min", x, over, wide, name="min")
    high = ctx.reduce("max", x, over, wide, name="max")
    return minimum(Num(low.load(())), 0.0), maximum(Num(high.load(())), 0.0)


def _refused(low: int, high: int, dtype: DType) -> Declined | None:
    """Decline levels that eager handles differently or refuses."""
    known = dtype in _CHOSEN_FOR and low <= 0 <= high and low < high
    return None if known else Declined(f"quantisation to {dtype} from {low} to {high} is not generated")


def _parameters(ctx: LoweringContext, scale: Num, zero: Num) -> tuple[Tensor, ...]:
    """Scale and zero as one-element tensors."""
    scales, zeros = ctx.outputs
    first = ctx.pointwise(lambda axes: scale.expr, scales, "0")
    return first, ctx.pointwise(lambda axes: zero.expr, zeros, "1")


@rule("quantized_decomposed.choose_qparams.tensor")
def choose_parameters(
    ctx: LoweringContext, x: Tensor, low: int, high: int, eps: float, dtype: DType
) -> tuple[Tensor, ...] | Declined:
    """Scale and zero for which 0 and all elements lie within ``low`` and ``high``; one-element tensors."""
    if refused := _refused(low, high, dtype):
        return refused
    least, largest = _extremes(ctx, x)
    scale = _step(_rounded(largest - least, x.dtype) / float(high - low), x.dtype, eps)
    zero = low - rint(least.to(f32) / scale).to(i32)
    return _parameters(ctx, scale, clamped_to(zero, low, high))


@rule("quantized_decomposed.choose_qparams_symmetric.tensor")
def choose_symmetric_parameters(
    ctx: LoweringContext, x: Tensor, low: int, high: int, eps: float, dtype: DType
) -> tuple[Tensor, ...] | Declined:
    """Scale and zero with equal ranges on both sides of 0; the zero is 128 for ``u8`` and else 0."""
    if refused := _refused(low, high, dtype):
        return refused
    least, largest = _extremes(ctx, x)
    scale = _step(maximum(-least, largest) / (float(high - low) / 2), x.dtype, eps)
    return _parameters(ctx, scale, Num(build.const(128 if dtype == u8 else 0, i64)))


def _step(scale: Num, dtype: DType, eps: float) -> Num:
    """Scale rounded to ``dtype``, at least ``eps``, in ``f32``."""
    return maximum(_rounded(scale, dtype).to(f32), eps)
