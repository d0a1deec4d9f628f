"""Programs of the corpus by element: arithmetic, dtypes, broadcasting, views and mutation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from litz_ir.builder import Tensor
from litz_ir.dtypes import b1, bf16, f16, f32, f64, i8, i32, i64, u8
from litz_scheduler.conformance.case import CaseBuilder, Program


def _gelu(g: CaseBuilder) -> Tensor:
    x = g.given("x", 33, 40)
    return x * 0.5 * (g.erf(x * 0.7071067811865476) + 1.0)


def _tanh_gelu(g: CaseBuilder) -> Tensor:
    x = g.given("x", 1000)
    return x * 0.5 * (g.tanh((x + x * x * x * 0.044715) * 0.7978845608028654) + 1.0)


def _silu_gate(g: CaseBuilder) -> Tensor:
    x, y = g.given("x", 7, 30), g.given("y", 7, 30)
    return x / (g.exp(-x) + 1.0) * y


def _broadcast(g: CaseBuilder) -> Tensor:
    x, y, z = g.given("x", 5, 1, 7), g.given("y", 3, 1), g.given("z", 7)
    return x * y + z


def _zero_dimensions(g: CaseBuilder) -> Tensor:
    x, y = g.given("x", 9), g.given("y")
    return x * y


def _empty(g: CaseBuilder) -> Sequence[Tensor]:
    x = g.given("x", 0, 5)
    return g.exp(x), g.sum(x, axis=0)


def _dynamic(g: CaseBuilder) -> Tensor:
    n = g.dynamic("n", 13)
    x, y = g.given("x", n, 6), g.given("y", 6)
    return g.maximum(x, 0.0) + y


def _dynamic_of_one(g: CaseBuilder) -> Tensor:
    n = g.dynamic("n", 1)
    x = g.given("x", 4, n)
    return x + g.sum(x, axis=1, keepdims=True)


def _dynamic_of_none(g: CaseBuilder) -> Sequence[Tensor]:
    n = g.dynamic("n", 0)
    x = g.given("x", n, 4)
    return g.exp(x), g.sum(x, axis=0)


def _several_results(g: CaseBuilder) -> Sequence[Tensor]:
    x = g.given("x", 12, 5)
    e = g.exp(x)
    return e, e + 1.0, g.sqrt(e)


def _repeated_steps(g: CaseBuilder) -> Tensor:
    x, y = g.given("x", 64), g.given("y", 64)
    for _ in range(20):
        x = g.minimum(g.maximum(x * y + 0.25, -2.0), 2.0)
    return x


def _integers(g: CaseBuilder) -> Sequence[Tensor]:
    x, y = g.given("x", 50, dtype=i32, low=-100, high=100), g.given("y", 50, dtype=i32, low=1, high=9)
    return x // y, x % y, x * y - x, g.bit_xor(x, y), g.maximum(x, y)


def _wrapping_integers(g: CaseBuilder) -> Tensor:
    x = g.given("x", 60, dtype=i8, low=-128, high=128)
    return x * x + x


def _long_integers(g: CaseBuilder) -> Tensor:
    x = g.given("x", 20, dtype=i64, low=-1000, high=1000)
    return x * 10_000_000_000 // 7


def _booleans(g: CaseBuilder) -> Tensor:
    x, y = g.given("x", 40), g.given("y", 40, dtype=b1)
    return g.where((x > 0.0) & y | (x < -1.0), x, g.neg(x))


def _casts(g: CaseBuilder) -> Sequence[Tensor]:
    x = g.given("x", 30, low=-100.0, high=100.0)
    return x.to(i32), x.to(f64) / 3.0, (x > 0.0).to(f32), x.to(i32).to(u8).to(i32)


def _half(g: CaseBuilder) -> Tensor:
    x, y = g.given("x", 11, 8, dtype=f16), g.given("y", 8, dtype=f16)
    return (x.to(f32) * y.to(f32) + 1.0).to(f16)


def _bfloat(g: CaseBuilder) -> Tensor:
    x, y = g.given("x", 11, 8, dtype=bf16), g.given("y", 8, dtype=bf16)
    return (g.tanh(x.to(f32)) + y.to(f32)).to(bf16)


def _double(g: CaseBuilder) -> Tensor:
    x = g.given("x", 25, dtype=f64, low=0.5)
    return g.log(x) * g.sqrt(x) + 1e-12


def _transposed(g: CaseBuilder) -> Sequence[Tensor]:
    x, y = g.given("x", 6, 10), g.given("y", 10, 6)
    return x.transpose() + y, x.transpose()


def _slices(g: CaseBuilder) -> Tensor:
    x = g.given("x", 8, 12)
    return x[1:, ::2] * x[:-1, 1::2]


def _reshaped(g: CaseBuilder) -> Tensor:
    x = g.given("x", 4, 6, 5)
    return g.exp(x.permute(1, 0, 2).reshape(6, 20)).reshape(3, 2, 4, 5)


def _reversed_rows(g: CaseBuilder) -> Tensor:
    x = g.given("x", 7, 9)
    return x.flip(0) + x.flip(1)


def _expanded(g: CaseBuilder) -> Tensor:
    x = g.given("x", 1, 6)
    return x.expand(5, 6) * g.index((5, 6), 0, f32)


def _overwritten(g: CaseBuilder) -> Sequence[Tensor]:
    x = g.given("x", 16)
    before = x + 1.0
    after = g.assign(x, x * 2.0)
    return before, after - 1.0


def _rotary(g: CaseBuilder) -> Tensor:
    x, angle = g.given("x", 2, 6, 8), g.given("angle", 6, 4)
    first, second = x[..., :4], x[..., 4:]
    low = first * g.cos(angle) - second * g.sin(angle)
    high = second * g.cos(angle) + first * g.sin(angle)
    return low * high


def _dropout_mask(g: CaseBuilder) -> Tensor:
    x, mask = g.given("x", 9, 9), g.given("mask", 9, 9, dtype=b1)
    return g.where(mask, x / 0.9, 0.0)


ELEMENTWISE: Mapping[str, Program] = {
    each.__name__[1:]: each
    for each in (
        _gelu, _tanh_gelu, _silu_gate, _broadcast, _zero_dimensions, _empty, _dynamic,
        _dynamic_of_one, _dynamic_of_none, _several_results, _repeated_steps, _integers, _wrapping_integers,
        _long_integers, _booleans, _casts, _half, _bfloat, _double, _transposed, _slices, _reshaped,
        _reversed_rows, _expanded, _overwritten, _rotary, _dropout_mask,
    )
}  # fmt: skip
"""Programs by name."""
