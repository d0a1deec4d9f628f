"""Quantised values as plain integers, and fake quantisation: generated kernels with eager's bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers quantized_decomposed
from torch import Tensor
from torch.utils._pytree import tree_leaves

import litz
from litz.loading import Compiled

pytestmark = pytest.mark.sampled  # it compiles whole programs

Q: Any = torch.ops.quantized_decomposed
INT8 = (-128, 127, torch.int8)
EDGES = (
    0.25,
    0.5,
    0.75,
    1.25,
    -0.25,
    -0.75,
    100.0,
    -100.0,
    1e6,
    -1e6,
    float("inf"),
    -float("inf"),
    0.0,
    -0.0,
)


def values(dtype: torch.dtype = torch.float32) -> Tensor:
    """Return normal numbers and edge cases, ties among them, in four rows."""
    numbers = torch.randn(4, 61, generator=torch.Generator().manual_seed(0)) * 3
    return torch.cat((numbers, torch.tensor([EDGES] * 4)), 1).to(dtype)


def levels() -> Tensor:
    return torch.arange(-128, 128, dtype=torch.int8).reshape(4, 64)


SCALES, ZEROS = torch.tensor([0.1, 0.37, 0.5, 1.3]), torch.tensor([0, 3, -2, 5])


def check(program: Callable[..., Any], *args: Tensor) -> None:
    """Assert the same bits as eager, and no call of ATen."""
    torch._dynamo.reset()
    compiled: list[Compiled] = []
    with litz.config.patch(fallback="error"):
        run = torch.compile(
            program, fullgraph=True,
            backend=lambda gm, inputs: litz.compile_fx(gm, inputs, observers=[compiled.append]),
        )  # fmt: skip
        found = run(*args)
    for got, want in zip(tree_leaves(found), tree_leaves(program(*args)), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    assert compiled[0].artifact is not None and not compiled[0].artifact.fallbacks


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_quantising_by_one_scale(dtype: torch.dtype) -> None:
    def program(x: Tensor, scale: Tensor, zero: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, ...]:
        return (
            Q.quantize_per_tensor(x, 0.5, 3, *INT8),
            Q.quantize_per_tensor(x, 0.3, 3, 0, 255, torch.uint8),
            Q.quantize_per_tensor.tensor(x, scale, zero, *INT8),
            Q.quantize_per_tensor.tensor2(x, scale, zero, low, high, torch.int8),
        )

    bounds = torch.tensor(-100), torch.tensor(100)
    check(program, values(dtype), torch.tensor([0.3]), torch.tensor([3]), *bounds)


def test_dequantising_by_one_scale() -> None:
    def program(x: Tensor, scale: Tensor, zero: Tensor) -> tuple[Tensor, ...]:
        return (
            Q.dequantize_per_tensor(x, 0.3, 3, *INT8),
            Q.dequantize_per_tensor(x, 0.3, 3, *INT8, out_dtype=torch.bfloat16),
            Q.dequantize_per_tensor.tensor(x, scale, zero, *INT8),
        )

    check(program, levels(), torch.tensor(0.3), torch.tensor(3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_scales_of_channels_and_tokens(dtype: torch.dtype) -> None:
    def program(x: Tensor, q: Tensor, scales: Tensor, zeros: Tensor) -> tuple[Tensor, ...]:
        return (
            Q.quantize_per_channel(x, scales, zeros, 0, *INT8),
            Q.quantize_per_channel(x.t(), scales, zeros, 1, *INT8),
            Q.quantize_per_token(x, scales[:, None], zeros[:, None], *INT8),
            Q.quantize_per_token(x.bfloat16(), scales[:, None], zeros[:, None], *INT8),
            Q.dequantize_per_channel(q, scales, zeros, 0, *INT8),
            Q.dequantize_per_channel(q, scales, None, 0, *INT8),
            Q.dequantize_per_token(q, scales[:, None], zeros[:, None], *INT8, torch.float32),
        )

    check(program, values(), levels(), SCALES.to(dtype), ZEROS)


FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
GROUPED = torch.linspace(0.1, 1.7, 12).reshape(4, 3), torch.arange(-5, 7).reshape(4, 3)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_quantising_by_group(dtype: torch.dtype) -> None:
    def program(x: Tensor, scales: Tensor, zeros: Tensor) -> tuple[Tensor, ...]:
        group, narrow = Q.quantize_per_channel_group, scales.to(dtype)
        return (
            group(x, scales, zeros, *INT8, 25),
            group(x, narrow, zeros.int(), 0, 255, torch.uint8, 25),
            group(x, narrow, zeros, -32768, 32767, torch.int16, 25),
            group(x, scales.flatten(), zeros.to(dtype) + 0.25, *INT8, 25),
            group(x.t(), scales[:1, :1], zeros[0, 0], -8, 7, torch.int8, 2),
            group(x, scales[:, :1], zeros[:, :1], *INT8, 100),
        )

    check(program, values(dtype), *GROUPED)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.float32], ids=str)
def test_dequantising_by_group(dtype: torch.dtype) -> None:
    def program(q: Tensor, scales: Tensor, zeros: Tensor) -> tuple[Tensor, ...]:
        group = Q.dequantize_per_channel_group
        return (
            group(q, scales, zeros, *INT8, 21, torch.float32),
            group(q, scales.double(), zeros.to(torch.int8), *INT8, 21, torch.float32),
            group(q, scales.bfloat16(), None, *INT8, 21, torch.bfloat16),
            group(q, scales[:, :1], zeros[:, :1] + 0.5, *INT8, 100, torch.float16),
        )

    check(program, levels()[:, :63].to(dtype), *GROUPED)


def by_group(x: Tensor, scales: Tensor, zeros: Tensor) -> tuple[Tensor, Tensor]:
    levels = Q.quantize_per_channel_group(x, scales, zeros, *INT8, 25)
    return levels, Q.dequantize_per_channel_group(levels, scales, zeros, *INT8, 25, torch.float32)


def test_groups_of_symbolic_sizes() -> None:
    torch._dynamo.reset()
    run = torch.compile(by_group, fullgraph=True, backend="litz", dynamic=True)
    with litz.config.patch(fallback="error"):
        found = run(values(), *GROUPED)
    torch.testing.assert_close(found, by_group(values(), *GROUPED), rtol=0, atol=0, equal_nan=True)


def test_groups_that_eager_refuses() -> None:
    def program(x: Tensor, scales: Tensor, zeros: Tensor) -> Any:
        return Q.quantize_per_channel_group(x, scales, zeros, *INT8, 25)

    scales, zeros = GROUPED
    refused = (
        (AssertionError, "to_quant must not contain NaNs", values() * 0, scales, zeros),
        (RuntimeError, "must", values(), scales[:, :2], zeros),
    )
    for error, message, *given in refused:
        torch._dynamo.reset()
        for run in (program, torch.compile(program, fullgraph=True, backend="litz")):
            with pytest.raises(error, match=message):
                run(*given)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_parameters_from_data(dtype: torch.dtype) -> None:
    def program(x: Tensor) -> list[Tensor]:
        found: list[Tensor] = list(Q.choose_qparams_per_token_asymmetric(x, torch.int8))
        if dtype != torch.float64:
            for low, high, kind in (INT8, (0, 255, torch.uint8), (0, 32767, torch.int16)):
                found += Q.choose_qparams.tensor(x, low, high, 1e-7, kind)
                found += Q.choose_qparams_symmetric.tensor(x, low, high, 1e-7, kind)
        return found

    finite = values(dtype)[:, :61]
    check(lambda *given: list(map(program, given)), finite, finite.abs(), -finite.abs(), values(dtype) * 0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_what_follows_parameters_from_data(dtype: torch.dtype) -> None:
    """Regression: the operator's meta function states ``f64`` scales and integer zeros, which it does not give."""

    def program(x: Tensor) -> tuple[Tensor, ...]:
        scales, zeros = Q.choose_qparams_per_token(x, torch.int8)
        return scales, zeros, scales * 2, Q.quantize_per_token(x, scales, zeros, *INT8)

    check(program, values(dtype)[:, :61])


def test_casts_that_are_not_fused() -> None:
    check(lambda x: Q.convert_element_type.no_fuse(x, torch.bfloat16).float() + 1, values())


def test_fake_quantisation_of_channels() -> None:
    check(lambda x: Q.fake_quant_per_channel(x, SCALES, ZEROS, 0, -20, 20), values())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_fake_quantisation(dtype: torch.dtype) -> None:
    aten: Any = torch.ops.aten

    def program(x: Tensor, scale: Tensor, zero: Tensor, off: Tensor) -> tuple[Any, ...]:
        by_channel = aten.fake_quantize_per_channel_affine_cachemask
        return (
            torch.fake_quantize_per_tensor_affine(x, 0.3, 3, -128, 127),
            aten.fake_quantize_per_tensor_affine_cachemask(x, 0.3, 3, -20, 20),
            torch.fake_quantize_per_tensor_affine(x, scale, zero, -128, 127),
            aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(x, scale, zero, off, -9, 9),
            by_channel(x, SCALES, ZEROS.int(), 0, -20, 20),
            by_channel(x, SCALES, ZEROS + 0.3, 0, -128, 127),
        )

    x = torch.cat((values(dtype), torch.full((4, 2), float("nan"), dtype=dtype)), 1)
    check(program, x, torch.tensor(0.3), torch.tensor(3, dtype=torch.int32), torch.tensor([0]))


def test_learned_fake_quantisation_and_its_gradients() -> None:
    def program(x: Tensor, scale: Tensor, zero: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
        whole = torch._fake_quantize_learnable_per_tensor_affine(x, scale, zero, -8, 7, 0.5)
        rows = torch._fake_quantize_learnable_per_channel_affine(x, scales, zeros, 0, -8, 7, 0.5)
        fixed = torch.fake_quantize_per_tensor_affine(x, 0.3, 3, -8, 7)
        return torch.stack((whole, rows, fixed))

    given = (values()[:, :61], torch.tensor([0.3]), torch.tensor([1.4]), SCALES, ZEROS + 0.4)
    results = []
    with litz.config.patch(fallback="error"):
        for run in (program, torch.compile(program, backend="litz", fullgraph=True)):
            leaves = [t.detach().clone().requires_grad_() for t in given]
            out = run(*leaves)
            (out * torch.linspace(-1, 1, out.numel()).reshape(out.shape)).sum().backward()
            results.append((out.detach(), [leaf.grad for leaf in leaves]))
    torch.testing.assert_close(results[1][0], results[0][0], rtol=0, atol=0)
    torch.testing.assert_close(results[1][1], results[0][1])


def test_tensors_of_quantised_dtypes_are_eagers() -> None:
    programs: tuple[Callable[[Tensor], Tensor], ...] = (
        lambda x: torch.quantize_per_tensor(x * 2, 0.1, 3, torch.quint8).dequantize() + 1,
        lambda x: torch.relu(torch.quantize_per_tensor(x, 0.1, 3, torch.qint8)).dequantize(),
        lambda x: (
            torch.quantize_per_tensor(x, SCALES[0], ZEROS[0], torch.quint8).t().contiguous().dequantize()
        ),
        lambda x: torch.quantize_per_tensor(x, 0.1, 3, torch.quint8),
    )
    for program in programs:
        torch._dynamo.reset()
        found = torch.compile(program, backend="litz", fullgraph=True)(values()[:, :61])
        expected = program(values()[:, :61])
        assert found.dtype == expected.dtype and found.stride() == expected.stride()
        assert torch.equal(found, expected)
