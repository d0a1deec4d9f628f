"""Pointwise operators against eager."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lowering_check import check, check_gradients

from litz_ir.text import to_text
from litz_lowering import LoweringOptions

A = torch.ops.aten


def values(dtype: torch.dtype, *shape: int, seed: int = 0) -> torch.Tensor:
    """Numbers of both signs, small and moderate."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if not dtype.is_floating_point:
        low = 0 if dtype == torch.uint8 else -9
        return torch.randint(low, 10, shape, generator=generator).to(dtype)
    return (torch.randn(shape, generator=generator) * 2).to(dtype)


FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
UNARY = (
    "sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sigmoid sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh erf erfc erfinv lgamma digamma reciprocal floor ceil trunc round abs sign neg square frac relu isnan isinf "
    "isfinite signbit logical_not"
).split()


def all_of(functions: dict[str, Any], names: Iterable[str]) -> Any:
    """All the named functions of one set of arguments, as one trace."""
    return lambda *args: [functions[name](*args) for name in names]


def operators(*names: str) -> Any:
    """Functions of ``torch`` of one argument, by name."""
    return all_of({name: getattr(torch, name) for name in names}, names)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_unary(dtype: torch.dtype) -> None:
    check(operators(*UNARY), values(dtype, 4, 5), rtol=2e-5, rounding=0.02, labels=UNARY)


INTEGER_UNARY = (
    "abs sign neg floor exp sqrt isnan isfinite signbit bitwise_not logical_not square sigmoid reciprocal"
).split()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8], ids=str)
def test_unary_of_integers(dtype: torch.dtype) -> None:
    check(operators(*INTEGER_UNARY), values(dtype, 7), labels=INTEGER_UNARY)


def test_unary_of_bools() -> None:
    names = ["bitwise_not", "logical_not", "exp", "isnan"]
    check(operators(*names), values(torch.bool, 7), labels=names)


BINARY = {
    "add": lambda x, y: x + y,
    "add_alpha": lambda x, y: torch.add(x, y, alpha=3),
    "sub": lambda x, y: x - y,
    "sub_alpha": lambda x, y: torch.sub(x, y, alpha=2),
    "rsub": lambda x, y: torch.rsub(x, y, alpha=2),
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "fmin": torch.fmin,
    "fmax": torch.fmax,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
}
PAIRS = [
    (torch.float32, torch.float32), (torch.bfloat16, torch.bfloat16), (torch.bfloat16, torch.float32),
    (torch.float16, torch.bfloat16), (torch.int64, torch.float32), (torch.int32, torch.int64),
    (torch.uint8, torch.int8), (torch.float64, torch.float32), (torch.int32, torch.bfloat16),
]  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: f"{p[0]}-{p[1]}")
def test_binary_promotes_and_broadcasts(pair: tuple[torch.dtype, torch.dtype]) -> None:
    x, y = values(pair[0], 3, 1, 5), values(pair[1], 4, 1, seed=1)
    exact = [name for name in BINARY if "alpha" not in name and name != "rsub"]
    check(all_of(BINARY, exact), x, y, labels=exact)
    # Eager's scalar and vectorised loops round the multiplication by alpha differently.
    scaled = sorted(set(BINARY) - set(exact))
    check(all_of(BINARY, scaled), x, y, labels=scaled, rounding=0.02)


def test_binary_of_bools() -> None:
    names = ["add", "mul", "minimum", "eq", "logical_xor"]
    check(all_of(BINARY, names), values(torch.bool, 9), values(torch.bool, 9, seed=1), labels=names)


SCALARS = {
    "add": lambda x: x + 2,
    "add_float": lambda x: x + 0.1,
    "mul_float": lambda x: x * 0.1,
    "rsub": lambda x: 1 - x,
    "div": lambda x: x / 3,
    "rdiv": lambda x: 2.5 / (x + 20),
    "lt": lambda x: x < 0.1,
    "ge_int": lambda x: x >= 1,
    "floor_divide": lambda x: torch.div(x, 3, rounding_mode="floor"),
    "trunc_divide": lambda x: torch.div(x, 3, rounding_mode="trunc"),
    "remainder": lambda x: torch.remainder(x, 3),
    "fmod": lambda x: torch.fmod(x, 3),
    "square": lambda x: x**2,
    "cube": lambda x: x**3,
    "clamp": lambda x: torch.clamp(x, -1, 2),
    "clamp_min": lambda x: x.clamp_min(1),
    "clamp_max": lambda x: x.clamp_max(1),
    "maximum_of_scalar_tensor": lambda x: torch.maximum(x, torch.ones((), dtype=x.dtype)),
}


ROUGH = ("cube", "floor_divide", "trunc_divide", "rdiv")
"""Operators for which eager rounds 16-bit floats between its own steps."""


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.int32, torch.float64], ids=str
)
def test_scalar_operands(dtype: torch.dtype) -> None:
    exact = [name for name in SCALARS if name not in ROUGH]
    check(all_of(SCALARS, exact), values(dtype, 4, 6), labels=exact)
    check(all_of(SCALARS, ROUGH), values(dtype, 4, 6), labels=ROUGH, rounding=0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_powers(dtype: torch.dtype) -> None:
    exponents = (0, 1, 2, 3, 0.5, -0.5, -1, -2, 1.7, 4)
    check(
        lambda x: [x**e for e in exponents], values(dtype, 11).abs() + 0.5, labels=list(map(str, exponents))
    )


def test_power_of_scalar_and_tensor() -> None:
    x, y = values(torch.float32, 6).abs() + 0.1, values(torch.float32, 6, seed=1)
    check(lambda x, y: (2.0**y, torch.pow(x, y), torch.pow(3, y)), x, y)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool], ids=str)
def test_bits(dtype: torch.dtype) -> None:
    check(lambda x, y: (x & y, x | y, x ^ y), values(dtype, 8), values(dtype, 8, seed=1))


def test_shifts() -> None:
    x = values(torch.int32, 8)
    check(lambda x: (x << 2, x >> 1, torch.bitwise_left_shift(x, x.abs() % 4)), x)


def test_division_modes_of_integers_and_floats() -> None:
    for dtype in (torch.int64, torch.float32):
        x, y = values(dtype, 12), values(dtype, 12, seed=3)
        y = torch.where(y == 0, torch.ones_like(y), y)
        check(
            lambda x, y: (
                torch.div(x, y, rounding_mode="floor"), torch.div(x, y, rounding_mode="trunc"), torch.remainder(x, y),
                torch.fmod(x, y), torch.floor_divide(x, y),
            ),
            x, y,
        )  # fmt: skip


ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardtanh": lambda x: F.hardtanh(x, -0.5, 0.7),
    "relu6": F.relu6,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "elu": lambda x: F.elu(x, 0.7),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 0.5),
    "softplus": lambda x: F.softplus(x, 2.0, 1.0),
    "softplus_default": F.softplus,
    "softsign": F.softsign,
    "threshold": lambda x: F.threshold(x, 0.1, 20.0),
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "tanhshrink": F.tanhshrink,
    "logsigmoid": F.logsigmoid,
    "glu": lambda x: F.glu(x, -1),
    "prelu": lambda x: F.prelu(x, torch.full((1,), 0.3, dtype=x.dtype)),
    "logit": lambda x: torch.logit(torch.sigmoid(x)),
    "nan_to_num": lambda x: torch.nan_to_num(torch.log(x)),
    "log_of_zero": lambda x: torch.log(x.relu()),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_activations(dtype: torch.dtype) -> None:
    names = list(ACTIVATIONS)
    check(all_of(ACTIVATIONS, names), values(dtype, 5, 8), rounding=0.02, labels=names)


@pytest.mark.parametrize("name", sorted(set(ACTIVATIONS) - {"nan_to_num", "log_of_zero", "logit"}))
def test_gradients_of_activations(name: str) -> None:
    check_gradients(ACTIVATIONS[name], values(torch.float32, 5, 8), atol=2e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_bounds_of_a_logit_are_rounded_as_in_eager(dtype: torch.dtype) -> None:
    x = torch.tensor([-1.0, -0.0, 0.0, 1e-5, 0.25, 0.75, 0.9999, 1.0, 2.0, torch.nan], dtype=dtype)

    def gradients(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [torch.ops.aten.logit_backward(y, x, eps) for eps in (None, 0.0, 1e-6, 1e-3, 0.6)]

    check(lambda x: [torch.logit(x, eps) for eps in (None, 0.0, 1e-6, 1e-3, 0.6)], x, rounding=0.02)
    # Eager's gradient at -0.0 depends on the element's place in a vector.
    check(gradients, x + 0.0, values(dtype, 10), rounding=0.02)


TERNARY: dict[str, Any] = {
    "where": lambda x, y, z: torch.where(x > 0, y, z),
    "where_scalar": lambda x, y, z: torch.where(x > 0, y, 1.5),
    "where_promotes": lambda x, y, z: torch.where(x > 0, y, z.double()),
    "masked_fill": lambda x, y, z: x.masked_fill(y > 0, -math.inf),
    "masked_fill_tensor": lambda x, y, z: x.masked_fill(y > 0, z.sum()),
    "addcmul": lambda x, y, z: torch.addcmul(x, y, z, value=0.5),
    "addcdiv": lambda x, y, z: torch.addcdiv(x, y, z, value=-2),
    "lerp": lambda x, y, z: torch.lerp(x, y, 0.3),
    "lerp_far": lambda x, y, z: torch.lerp(x, y, 0.8),
    "lerp_tensor": torch.lerp,
    "clamp_tensors": lambda x, y, z: torch.clamp(x, y, z),
    "clamp_min_tensor": lambda x, y, z: torch.clamp(x, min=y),
    "atan2": lambda x, y, z: torch.atan2(x, y),
    "hypot": lambda x, y, z: torch.hypot(x, y),
    "ldexp": lambda x, y, z: torch.ldexp(x, torch.round(y)),
    "angle": lambda x, y, z: torch.angle(x),
    "copysign": lambda x, y, z: torch.copysign(x, y),
    "logaddexp": lambda x, y, z: torch.logaddexp(x, y),
    "xlogy": lambda x, y, z: torch.xlogy(x, y.abs()),
    "heaviside": lambda x, y, z: torch.heaviside(x, y),
    "round_decimals": lambda x, y, z: torch.round(x, decimals=2),
    "isclose": lambda x, y, z: torch.isclose(x, x + 1e-9),
    "mse": lambda x, y, z: F.mse_loss(x, y, reduction="none"),
    "smooth_l1": lambda x, y, z: F.smooth_l1_loss(x, y, reduction="none"),
    "bce": lambda x, y, z: F.binary_cross_entropy_with_logits(x, torch.sigmoid(y), reduction="none"),
}


def test_several_operands() -> None:
    x, y, z = (values(torch.float32, 4, 6, seed=k) for k in range(3))
    check(all_of(TERNARY, TERNARY), x, y, z, labels=list(TERNARY))


def test_fast_numerics_multiply_by_the_reciprocal() -> None:
    lowered = check(lambda x: x / 3, values(torch.float32, 9), options=LoweringOptions(numerics="fast"))
    assert "* 0.3" in to_text(lowered.graph)
    assert "/ 3.0" in to_text(check(lambda x: x / 3, values(torch.float32, 9)).graph)


def test_zero_dimensional_operands() -> None:
    x, scale = values(torch.bfloat16, 4, 4), torch.tensor(0.3)
    check(lambda x, s: (x * s, x + s.double(), s * 2), x, scale)


def test_casts() -> None:
    x = values(torch.float32, 4, 4) * 40
    check(lambda x: (x.int(), x.bool(), x.bfloat16(), x.half().float(), x.to(torch.int8), x.double()), x)
    check(lambda x: (x.float(), x.bool(), x.to(torch.uint8)), values(torch.int64, 9))


def test_lists_of_tensors() -> None:
    lists = [[values(torch.float32, 3, 4, seed=k + 10 * n).abs() for k in range(3)] for n in range(4)]

    def adamw(ps: list[Any], gs: list[Any], ms: list[Any], vs: list[Any]) -> Any:
        ms = torch._foreach_lerp(ms, gs, 0.1)
        vs = torch._foreach_mul(vs, 0.999)
        vs = torch._foreach_addcmul(vs, gs, gs, 0.001)
        d = torch._foreach_add(torch._foreach_sqrt(vs), 1e-8)
        return torch._foreach_addcdiv(ps, ms, d, -1e-3), ms, vs

    check(adamw, *lists)
    check(lambda a, b: (torch._foreach_sub(a, b), torch._foreach_div(a, [1.0, 2.0, 3.0])), lists[0], lists[1])


@pytest.mark.parametrize("ord", [1, 2, float("inf")])
def test_norms_of_lists(ord: float) -> None:
    check(lambda a: torch._foreach_norm(a, ord), [torch.randn(3, 4), torch.randn(5)])


@pytest.mark.skipif(not hasattr(torch, "_foreach_clone"), reason="torch 2.12 has it")
def test_lists_of_powers_largest_elements_and_copies() -> None:
    check(
        lambda a: (torch._foreach_pow(2.0, a), torch._foreach_max(a), torch._foreach_clone(a)),
        [torch.randn(3, 4), torch.randn(5)],
    )


def test_clipping_gradients_by_their_norm() -> None:
    def clipped(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        total = torch.linalg.vector_norm(torch.stack(torch._foreach_norm([a, b])))
        return list(torch._foreach_mul([a, b], (1.0 / (total + 1e-6)).clamp(max=1.0)))

    check(clipped, torch.randn(3, 4), torch.randn(5))


@pytest.mark.parametrize("shape", [(), (0,), (1, 1), (3, 0, 2)])
def test_small_and_empty_shapes(shape: tuple[int, ...]) -> None:
    check(lambda x: torch.relu(x * 2 + 1).exp(), values(torch.float32, *shape))


def test_strides_are_eagers() -> None:
    x = values(torch.float32, 2, 3, 4, 5).to(memory_format=torch.channels_last)
    check(lambda x: (x + 1, x.permute(3, 0, 1, 2) * 2, x.transpose(1, 2).clone()), x)


def test_mutation_of_an_input() -> None:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y)
        y.mul_(2)
        return x + y

    check(step, values(torch.float32, 3, 4), values(torch.float32, 3, 4, seed=1))
