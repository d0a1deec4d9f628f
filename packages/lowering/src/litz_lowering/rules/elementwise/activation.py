"""Activations and their gradients: rows of the pointwise table, computed as eager does."""

from __future__ import annotations

import math

from litz_ir.dtypes import DType
from litz_lowering.expressions import formula as f
from litz_lowering.expressions.formula import Num, Number, where
from litz_lowering.rules.elementwise.pointwise import row

_SQRT_HALF = math.sqrt(0.5)
_TANH_SCALE = math.sqrt(2.0) * (2.0 / math.sqrt(math.pi)) * 0.5
_TANH_CUBIC = 0.044715


# --- forward ----------------------------------------


def _gelu(x: Num, approximate: str = "none") -> Num:
    if approximate == "tanh":
        inner = _TANH_SCALE * (x + _TANH_CUBIC * (x * x * x))
        return 0.5 * x * (1.0 + f.tanh(inner))
    return x * 0.5 * (1.0 + f.erf(x * _SQRT_HALF))


def _elu(x: Num, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Num:
    return where(x < 0, f.expm1(x * input_scale) * (alpha * scale), x * scale)


def _softplus(x: Num, beta: Number = 1, threshold: Number = 20) -> Num:
    scaled = x * beta
    return where(scaled > threshold, x, f.log1p(f.exp(scaled)) / beta)


def _hardtanh(x: Num, min_val: Number = -1, max_val: Number = 1) -> Num:
    return f.clip(x, min_val, max_val)


def _hardshrink(x: Num, lambd: Number = 0.5) -> Num:
    return where((x >= -lambd) & (x <= lambd), 0, x)


def _softshrink(x: Num, lambd: Number = 0.5) -> Num:
    return where(x > lambd, x - lambd, where(x < -lambd, x + lambd, x * 0))


def _bounds_of_logit(x: Num, eps: Number, result: DType) -> tuple[Num, Num]:
    """Bounds of a logit's argument, each rounded as in eager."""
    low = x.like(eps).to(result).to(x.dtype)
    return low, (1 - low).to(result).to(x.dtype)


def _logit(x: Num, eps: Number | None = None, *, result: DType) -> Num:
    if eps is not None:
        low, high = _bounds_of_logit(x, eps, result)
        x = where(x < low, low, where(x > high, high, x))
    return f.log(x / (1 - x))


row(lambda x: f.clip(x, 0), "relu.default")
row(_gelu, "gelu.default")
row(lambda x: x / (1.0 + f.exp(-x)), "silu.default")
row(lambda x: x * f.tanh(f.log1p(f.exp(x))), "mish.default")
row(lambda x: x * f.clip(x + 3, 0, 6) / 6, "hardswish.default")
row(lambda x: f.clip(x + 3, 0, 6) / 6, "hardsigmoid.default")
row(_hardtanh, "hardtanh.default", rounds_numbers="cpu")
row(lambda x, negative_slope=0.01: where(x > 0, x, x * negative_slope), "leaky_relu.default")
row(lambda x, weight: where(x > 0, x, x * weight), "_prelu_kernel.default")
row(_elu, "elu.default")
row(_softplus, "softplus.default")
row(lambda x, threshold, value: where(x <= threshold, value, x), "threshold.default")
row(_hardshrink, "hardshrink.default")
row(_softshrink, "softshrink.default")
row(
    _logit, "logit.default", on_gpus=lambda x, eps=None, *, result: _logit(x, eps, result=x.dtype), typed=True
)

# --- backward ----------------------------------------


def _gelu_backward(grad: Num, x: Num, approximate: str = "none") -> Num:
    if approximate == "tanh":
        square = x * x
        t = f.tanh(_TANH_SCALE * (x + _TANH_CUBIC * (square * x)))
        half_x, one_plus_t = 0.5 * x, 1.0 + t
        inner = _TANH_SCALE * (1.0 + 3.0 * _TANH_CUBIC * square)
        return grad * (0.5 * one_plus_t + half_x * (1.0 - t * t) * inner)
    cdf = 0.5 * (1.0 + f.erf(x * _SQRT_HALF))
    pdf = f.exp(x * x * -0.5) * (0.5 * _SQRT_HALF * 2.0 / math.sqrt(math.pi))
    return grad * (cdf + x * pdf)


def _silu_backward(grad: Num, x: Num) -> Num:
    s = f.sigmoid(x)
    return grad * s * (1.0 + x * (1.0 - s))


def _mish_backward(grad: Num, x: Num) -> Num:
    s, t = f.sigmoid(x), f.tanh(f.log1p(f.exp(x)))
    return grad * (t + x * s * (1.0 - t * t))


def _hardswish_backward(grad: Num, x: Num) -> Num:
    return where(x <= -3, 0, where(x < 3, grad * (x / 3 + 0.5), grad))


def _hardsigmoid_backward(grad: Num, x: Num) -> Num:
    return where((x > -3) & (x < 3), grad * (1.0 / 6.0), 0)


def _hardtanh_backward(grad: Num, x: Num, min_val: Number, max_val: Number) -> Num:
    return where((x <= min_val) | (x >= max_val), 0, grad)


def _elu_backward(
    grad: Num, alpha: Number, scale: Number, input_scale: Number, is_result: bool, x: Num
) -> Num:  # fmt: skip
    negative = alpha * scale
    if is_result:
        below = grad * input_scale * (x + negative)
    else:
        below = grad * (input_scale * negative) * f.exp(x * input_scale)
    return where(x <= 0, below, grad * scale)


def _softplus_backward(grad: Num, x: Num, beta: Number, threshold: Number) -> Num:
    z = f.exp(x * beta)
    return where(x * beta > threshold, grad, grad * z / (z + 1.0))


def _leaky_relu_backward(grad: Num, x: Num, negative_slope: Number, self_is_result: bool) -> Num:
    return where(x > 0, grad, grad * negative_slope)


def _shrink_backward(grad: Num, x: Num, lambd: Number) -> Num:
    return where((x >= -lambd) & (x <= lambd), 0, grad)


def _logit_backward(grad: Num, x: Num, eps: Number | None = None, *, result: DType) -> Num:
    slope = grad / (x * (1 - x))
    if eps is None:
        return where((x < 0) | (x > 1), math.nan, slope)
    low, high = _bounds_of_logit(x, eps, result)
    return where((x < low) | (x > high), 0, slope)


row(lambda grad, y: grad * (1.0 - y * y), "tanh_backward.default")
row(lambda grad, y: grad * (1.0 - y) * y, "sigmoid_backward.default")
row(lambda grad, x, threshold: where(x <= threshold, 0, grad), "threshold_backward.default")
row(_gelu_backward, "gelu_backward.default")
row(_silu_backward, "silu_backward.default")
row(_mish_backward, "mish_backward.default")
row(_hardswish_backward, "hardswish_backward.default")
row(_hardsigmoid_backward, "hardsigmoid_backward.default")
row(_hardtanh_backward, "hardtanh_backward.default")
row(_elu_backward, "elu_backward.default")
row(_softplus_backward, "softplus_backward.default")
row(_leaky_relu_backward, "leaky_relu_backward.default")
row(_shrink_backward, "hardshrink_backward.default", "softshrink_backward.default")
row(
    _logit_backward, "logit_backward.default",
    on_gpus=lambda grad, x, eps=None, *, result: _logit_backward(grad, x, eps, result=x.dtype), typed=True,
)  # fmt: skip
