"""Programs of the corpus that are layers of models, some with their gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from litz_ir.builder import Tensor
from litz_ir.dtypes import bf16, f16, f32, i64
from litz_scheduler.conformance.case import CaseBuilder, Program


def softmax_of(g: CaseBuilder, x: Tensor, axis: int = -1) -> Tensor:
    """Return the softmax along an axis."""
    powers = g.exp(x - g.max(x, axis=axis, keepdims=True))
    return powers / g.sum(powers, axis=axis, keepdims=True)


def normalised(g: CaseBuilder, x: Tensor, axis: int | Sequence[int] = -1) -> Tensor:
    """Return numbers with mean 0 and variance 1 along axes."""
    centred = x - g.mean(x, axis=axis, keepdims=True)
    return centred * g.rsqrt(g.mean(centred * centred, axis=axis, keepdims=True) + 1e-5)


def _softmax(g: CaseBuilder) -> Tensor:
    return softmax_of(g, g.given("x", 33, 100))


def _softmax_of_columns(g: CaseBuilder) -> Tensor:
    return softmax_of(g, g.given("x", 100, 33), 0)


def _softmax_gradient(g: CaseBuilder) -> Tensor:
    y, gradient = softmax_of(g, g.given("x", 16, 40)), g.given("gradient", 16, 40)
    return (gradient - g.sum(gradient * y, axis=-1, keepdims=True)) * y


def _cross_entropy(g: CaseBuilder) -> Tensor:
    x, labels = g.given("x", 12, 30), g.given("labels", 12, dtype=i64, low=0, high=30)
    shifted = x - g.max(x, axis=1, keepdims=True)
    logits = shifted - g.log(g.sum(g.exp(shifted), axis=1, keepdims=True))
    hit = (g.index((12, 30), 1) - labels.reshape(12, 1)).to(f32)
    return -g.sum(g.where(g.eq(hit, 0.0), logits, 0.0)) / 12.0


def _layer_norm(g: CaseBuilder) -> Tensor:
    x, w, b = g.given("x", 20, 96), g.given("w", 96), g.given("b", 96)
    return normalised(g, x) * w + b


def _layer_norm_with_residual(g: CaseBuilder) -> Sequence[Tensor]:
    x, r, w = g.given("x", 20, 96), g.given("r", 20, 96), g.given("w", 96)
    h = x + r
    return normalised(g, h) * w, h


def _layer_norm_of_half(g: CaseBuilder) -> Tensor:
    x, w = g.given("x", 10, 64, dtype=f16), g.given("w", 64, dtype=f16)
    return (normalised(g, x.to(f32)) * w.to(f32)).to(f16)


def _layer_norm_gradients(g: CaseBuilder) -> Sequence[Tensor]:
    x, w, gradient = g.given("x", 24, 32), g.given("w", 32), g.given("gradient", 24, 32)
    y, scaled = normalised(g, x), gradient * w
    mean = g.mean(scaled, axis=1, keepdims=True)
    to_x = scaled - mean - y * g.mean(scaled * y, axis=1, keepdims=True)
    return to_x, g.sum(gradient * y, axis=0), g.sum(gradient, axis=0)


def _rms_norm(g: CaseBuilder) -> Tensor:
    x, w = g.given("x", 20, 64, dtype=bf16), g.given("w", 64, dtype=bf16)
    wide = x.to(f32)
    scale = g.rsqrt(g.mean(wide * wide, axis=-1, keepdims=True) + 1e-6)
    return (wide * scale * w.to(f32)).to(bf16)


def _batch_norm(g: CaseBuilder) -> Sequence[Tensor]:
    x, w = g.given("x", 8, 6, 5, 5), g.given("w", 6)
    mean = g.mean(x, axis=(0, 2, 3))
    return normalised(g, x, (0, 2, 3)) * w.reshape(6, 1, 1), mean


def _group_norm(g: CaseBuilder) -> Tensor:
    x = g.given("x", 4, 8, 5, 5)
    return normalised(g, x.reshape(4, 2, 100)).reshape(4, 8, 5, 5)


def _linear(g: CaseBuilder) -> Tensor:
    x, w, b = g.given("x", 17, 24), g.given("w", 30, 24), g.given("b", 30)
    return g.maximum(x @ w.transpose() + b, 0.0)


def _batched_matmul(g: CaseBuilder) -> Tensor:
    return g.given("x", 3, 9, 12) @ g.given("y", 3, 12, 7)


def _library_matmul(g: CaseBuilder) -> Tensor:
    x, y, b = g.given("x", 17, 24), g.given("y", 24, 30), g.given("b", 30)
    matmul = g.call("aten.mm.default", x, y, dtype=f32, shape=(17, 30))
    return g.tanh(matmul + b)


def _attention(g: CaseBuilder) -> Tensor:
    q, k, v = (g.given(name, 2, 3, 10, 8) for name in "qkv")
    scores = q @ k.transpose() * 8**-0.5
    return softmax_of(g, scores) @ v


def _causal_attention(g: CaseBuilder) -> Tensor:
    q, k, v = (g.given(name, 2, 9, 8) for name in "qkv")
    scores = q @ k.transpose() * 8**-0.5
    seen = g.index(scores.shape, -2) >= g.index(scores.shape, -1)
    return softmax_of(g, g.where(seen, scores, float("-inf"))) @ v


def _feed_forward(g: CaseBuilder) -> Tensor:
    x, up, down = g.given("x", 10, 16), g.given("up", 16, 40), g.given("down", 40, 16)
    h = x @ up
    return x + (h / (g.exp(-h) + 1.0)) @ down


def _max_pool(g: CaseBuilder) -> Tensor:
    x = g.given("x", 2, 3, 8, 8)
    return g.max(x.reshape(2, 3, 4, 2, 4, 2), axis=(3, 5))


def _adam(g: CaseBuilder) -> Sequence[Tensor]:
    p, grad, m, v = (g.given(name, 200) for name in ("p", "grad", "m", "v"))
    mean = m * 0.9 + grad * 0.1
    square = g.abs(v) * 0.999 + grad * grad * 0.001
    step = g.assign(p, p - mean * 0.01 / (g.sqrt(square) + 1e-8))
    return step, mean, square


def _gradient_norm(g: CaseBuilder) -> Tensor:
    parts = [g.given(f"x{k}", 10 * (k + 1)) for k in range(4)]
    total = g.sqrt(g.sum(parts[0] * parts[0]) + sum_of_squares(g, parts[1:]))
    return parts[0] * g.minimum(1.0 / (total + 1e-6), 1.0)


def sum_of_squares(g: CaseBuilder, parts: Sequence[Tensor]) -> Tensor:
    """Return the sum of the squares of all elements of some tensors."""
    result = g.sum(parts[0] * parts[0])
    for part in parts[1:]:
        result = result + g.sum(part * part)
    return result


LAYERS: Mapping[str, Program] = {
    each.__name__[1:]: each
    for each in (
        _softmax, _softmax_of_columns, _softmax_gradient, _cross_entropy, _layer_norm,
        _layer_norm_with_residual, _layer_norm_of_half, _layer_norm_gradients, _rms_norm,
        _batch_norm, _group_norm, _linear, _batched_matmul, _library_matmul, _attention,
        _causal_attention, _feed_forward, _max_pool, _adam, _gradient_norm,
    )
}  # fmt: skip
"""Programs by name."""
