"""Matmuls of few rows on a CPU, which run as loops that read the matrix once, against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import litz
from litz.targets import targets_for
from litz_ir.device import CPU

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def _check(function: Callable[..., Tensor], *args: Any, calls: int = 0, kernels: int | None = None) -> None:
    """Compare a compiled function with eager, and count the matmuls that it calls and the kernels that it launches."""
    with torch.no_grad():
        expected = function(*args)
        torch._dynamo.reset()
        found = torch.compile(function, backend="litz", dynamic=False)(*args)
        plan = litz.explain(function, *args)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    unit, scale = torch.finfo(expected.dtype).eps, expected.float().abs().max().item()
    torch.testing.assert_close(found, expected, rtol=2 * unit, atol=max(unit, 1e-6) * scale)
    assert len(plan.calls) == calls
    assert kernels is None or len(plan.kernels) == kernels


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.silu(F.linear(x, weight, bias))


def _int8(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    return F.linear(x, weight.to(x.dtype)) * scales


def _int8_scaled_first(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    return x @ (weight.to(x.dtype) * scales[:, None]).t()


def _int4(x: Tensor, pairs: Tensor, scales: Tensor) -> Tensor:
    low, high = (pairs & 15).to(torch.int8) - 8, (pairs >> 4).to(torch.int8) - 8
    weight = torch.stack((low, high), -1).view(pairs.shape[0], scales.shape[1], -1)
    return F.linear(x, (weight.to(x.dtype) * scales[..., None]).view(pairs.shape[0], -1))


@pytest.mark.sampled
@pytest.mark.wide_vectors
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("rows", "k", "n"),
    [
        (1, 768, 400),
        (2, 768, 402),
        (3, 777, 399),
        (7, 784, 402),
        (8, 1024, 256),
        (5, 300, 1001),
        (8, 2304, 256),
        (7, 2563, 402),
    ],
)
def test_linear_with_bias_and_activation_is_one_kernel(dtype: torch.dtype, rows: int, k: int, n: int) -> None:
    torch.manual_seed(rows)
    args = torch.randn(rows, k).to(dtype), torch.randn(n, k).to(dtype), torch.randn(n).to(dtype)
    features = targets_for([CPU.kind], litz.config.current())[CPU].capabilities().features
    in_pairs = dtype == torch.bfloat16 and "avx512_bf16" in features
    called = dtype != torch.float32 and rows > 4 and not in_pairs
    _check(_linear, *args, calls=int(called), kernels=None if called else 1)


@pytest.mark.wide_vectors
@pytest.mark.parametrize(("rows", "n"), [(8, 4096), (7, 2816), (5, 1536), (6, 1001)])
def test_halves_of_rows_by_several_loops_of_columns(rows: int, n: int) -> None:
    def function(x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
        return F.silu(F.linear(x, weight[3 : n + 3], bias)) + residual.relu()

    torch.manual_seed(rows)
    k = 3400
    residual = torch.randn(rows, n)
    _check(function, torch.randn(rows, k), torch.randn(n + 3, k), torch.randn(n), residual, kernels=1)


def test_more_rows_and_small_matrices_are_calls() -> None:
    torch.manual_seed(0)
    _check(_linear, torch.randn(9, 768), torch.randn(400, 768), torch.randn(400), calls=1)
    _check(_linear, torch.randn(2, 64), torch.randn(64, 64), torch.randn(64), calls=1)


def test_a_matrix_with_contiguous_columns_is_a_call() -> None:
    torch.manual_seed(0)
    _check(torch.mm, torch.randn(2, 512), torch.randn(512, 512), calls=1)


@pytest.mark.sampled
@pytest.mark.wide_vectors
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 4, 8])
@pytest.mark.parametrize("function", [_int8, _int8_scaled_first])
def test_int8_weights_are_converted_in_the_kernel(
    function: Callable[..., Tensor], rows: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(rows)
    weight = torch.randint(-128, 128, (516, 1024), dtype=torch.int8)
    weight[0, :256] = torch.arange(-128, 128)
    scales = torch.rand(516).to(dtype) / 256
    _check(function, torch.randn(rows, 1024).to(dtype), weight, scales, kernels=1)


@pytest.mark.wide_vectors
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_small_matrix_that_loops_compute_needs_no_call(dtype: torch.dtype) -> None:
    def function(x: Tensor, weight: Tensor, scales: Tensor, other: Tensor) -> Tensor:
        return F.gelu(_int8(x, weight, scales)) @ torch.tanh(other).t()

    torch.manual_seed(0)
    weight, scales = torch.randint(-128, 128, (17, 24), dtype=torch.int8), torch.rand(17).to(dtype) / 256
    _check(function, torch.randn(3, 24).to(dtype), weight, scales, torch.randn(5, 17).to(dtype))


@pytest.mark.wide_vectors
@pytest.mark.parametrize("rows", [1, 3])
def test_the_operator_of_int8_weights_is_a_kernel(rows: int) -> None:
    torch.manual_seed(rows)
    weight, scales = torch.randint(-128, 128, (516, 1024), dtype=torch.int8), torch.rand(516).bfloat16()
    _check(torch._weight_int8pack_mm, torch.randn(rows, 1024).bfloat16(), weight, scales, kernels=1)


@pytest.mark.sampled
@pytest.mark.wide_vectors
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "group"), [(1, 128), (1, 32), (2, 1024), (8, 64)])
def test_int4_weights_are_unpacked_in_the_kernel(rows: int, group: int, dtype: torch.dtype) -> None:
    torch.manual_seed(group)
    pairs = torch.randint(0, 256, (516, 512), dtype=torch.uint8)
    pairs[0, :256] = torch.arange(256)
    scales = torch.rand(516, 1024 // group).to(dtype) / 16
    _check(_int4, torch.randn(rows, 1024).to(dtype), pairs, scales, kernels=1)


@pytest.mark.wide_vectors
def test_groups_that_no_axis_divides() -> None:
    def function(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
        columns = torch.arange(weight.shape[1]) // 100
        return F.linear(x, weight.to(x.dtype) * scales[:, columns])

    torch.manual_seed(0)
    weight = torch.randint(-128, 128, (516, 1024), dtype=torch.int8)
    _check(function, torch.randn(2, 1024), weight, torch.rand(516, 11))


@pytest.mark.wide_vectors
def test_a_gated_matmul_reads_both_matrices_in_one_kernel() -> None:
    def function(x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
        return F.silu(F.linear(x, gate)) * F.linear(x, up)

    torch.manual_seed(0)
    for dtype in DTYPES:
        gate, up = torch.randn(2, 512, 512).to(dtype)
        _check(function, torch.randn(2, 512).to(dtype), gate, up, kernels=1)


@pytest.mark.wide_vectors
@pytest.mark.parametrize("rows", [1, 8])
def test_a_norm_before_the_matmul_is_computed_once(rows: int) -> None:
    def function(x: Tensor, gain: Tensor, weight: Tensor) -> Tensor:
        return x[:, :512] + F.linear(F.rms_norm(x, (1024,), gain), weight)

    torch.manual_seed(0)
    _check(function, torch.randn(rows, 1024), torch.randn(1024), torch.randn(512, 1024), kernels=2)


@pytest.mark.wide_vectors
@pytest.mark.parametrize("rows", [1, 8])
def test_halves_of_bytes_that_are_not_adjacent(rows: int) -> None:
    def function(x: Tensor, pairs: Tensor, scales: Tensor) -> Tensor:
        low, high = (pairs & 15).to(torch.int8) - 8, (pairs >> 4).to(torch.int8) - 8
        weight = torch.cat((low, high), 1).to(x.dtype)
        return F.linear(x, weight * scales[:, None])

    torch.manual_seed(rows)
    pairs = torch.randint(0, 256, (512, 512), dtype=torch.uint8)
    for dtype in DTYPES:
        _check(function, torch.randn(rows, 1024).to(dtype), pairs, torch.rand(512).to(dtype) / 16)


@pytest.mark.parametrize("rows", [2, 8])
def test_infinities_and_nan_in_bf16_stay(rows: int) -> None:
    torch.manual_seed(rows)
    x, weight = torch.randn(rows, 512).bfloat16(), torch.randn(512, 512).bfloat16()
    x[1, 3], weight[7, 5], weight[9, 511] = torch.inf, torch.nan, -torch.inf
    with torch.no_grad():
        found = torch.compile(torch.mm, backend="litz", dynamic=False)(x, weight.t())
    exact = x.double() @ weight.t().double()
    torch.testing.assert_close(found.double(), exact, equal_nan=True, rtol=2**-8, atol=1e-3)


@pytest.mark.wide_vectors
def test_alpha_beta_and_nan() -> None:
    def function(bias: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        return torch.addmm(bias, x, weight.t(), beta=0.5, alpha=2.0)

    torch.manual_seed(0)
    bias, x, weight = torch.randn(4, 512), torch.randn(4, 512), torch.randn(512, 512)
    _check(function, bias, x, weight, kernels=1)
    x[1, 3], weight[7, 5], bias[2, 0] = torch.inf, torch.nan, torch.inf
    with torch.no_grad():
        found = torch.compile(function, backend="litz", dynamic=False)(bias, x, weight)
    torch.testing.assert_close(found, function(bias, x, weight), equal_nan=True, rtol=1e-5, atol=1e-4)


def test_symbolic_rows_are_calls_and_gradients_are_right() -> None:
    torch.manual_seed(0)
    weight, bias = torch.randn(512, 512, requires_grad=True), torch.randn(512, requires_grad=True)
    compiled = torch.compile(_linear, backend="litz", dynamic=True)
    for rows in (2, 3, 7):
        x = torch.randn(rows, 512)
        results = []
        for function in (compiled, _linear):
            weight.grad = bias.grad = None
            result = function(x, weight, bias)
            result.square().sum().backward()
            results.append((result.detach(), *(each.grad for each in (weight, bias))))
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-3)
