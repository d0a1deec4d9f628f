"""Gradients of norms on a CPU: columns are added up in the loop that reduces rows."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan

import pytest
import torch
import torch.nn.functional as F
from compared_with_eager import values

import litz
from litz_ir.plan import Store

Norm = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (x.shape[-1],), weight, bias)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight) + bias


def residual(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (x.shape[-1],), weight, bias).relu() * 2 + x


def gradients(
    norm: Norm, arguments: tuple[torch.Tensor, ...], tangent: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return the gradients of all arguments."""
    leaves = [each.detach().requires_grad_() for each in arguments]
    return torch.autograd.grad(norm(*leaves), leaves, tangent)


def arguments_of(*shape: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    """Return a tensor, a weight and a bias."""
    x, weight, bias = values(*shape), values(shape[-1]), values(1, shape[-1])[0]
    return x.to(dtype), weight.to(dtype), bias.to(dtype)


def compiled_gradients(
    norm: Norm, arguments: tuple[torch.Tensor, ...], tangent: torch.Tensor, *, dynamic: bool = False
) -> tuple[torch.Tensor, ...]:
    """Return the gradients of the norm, compiled without fallback."""
    torch._dynamo.reset()
    with litz.config.patch(fallback="error"):
        compiled = torch.compile(norm, backend="litz", fullgraph=True, dynamic=dynamic)
        return gradients(compiled, arguments, tangent)


def adding_kernels(norm: Norm, *arguments: torch.Tensor) -> list[int]:
    """Return for each kernel that adds to elements the number of sums of columns."""
    torch._dynamo.reset()
    leaves = [each.detach().requires_grad_() for each in arguments]
    return [
        adds
        for graph in litz.explain(lambda *given: norm(*given).square().sum(), *leaves, backward=True).graphs
        if graph.plan is not None
        for kernel in graph.plan.kernels
        if (
            adds := sum(isinstance(s, Store) and s.mode == "add" for p in kernel.phases for s in p.statements)
        )
    ]


@pytest.mark.sampled
@pytest.mark.parametrize("norm", [layer_norm, rms_norm, residual])
@pytest.mark.parametrize(
    "shape",
    [
        (2048, 192),
        (8, 256, 129),
        (2, 3, 160, 291),
        (515, 127),
        (512, 512),
        (31, 700),
        (1, 64),
        (1024, 1),
        (0, 8),
    ],
)
def test_gradients_agree_with_exact_ones(norm: Norm, shape: tuple[int, ...]) -> None:
    arguments, tangent = arguments_of(*shape), values(*shape)
    found = compiled_gradients(norm, arguments, tangent)
    exact = gradients(norm, tuple(each.double() for each in arguments), tangent.double())
    for own, other in zip(found, exact, strict=True):
        torch.testing.assert_close(own.double(), other, rtol=2e-5, atol=2e-3)


@pytest.mark.parametrize("norm", [layer_norm, residual])
@pytest.mark.parametrize("shape", [(4096, 256), (16, 128, 387)])
def test_gradients_in_bf16(norm: Norm, shape: tuple[int, ...]) -> None:
    arguments, tangent = arguments_of(*shape, dtype=torch.bfloat16), values(*shape, dtype=torch.bfloat16)
    found = compiled_gradients(norm, arguments, tangent)
    exact = gradients(norm, tuple(each.double() for each in arguments), tangent.double())
    for own, other in zip(found, exact, strict=True):
        assert own.dtype == torch.bfloat16
        torch.testing.assert_close(own.double(), other, rtol=2e-2, atol=0.25)


def test_gradients_of_dynamic_sizes() -> None:
    arguments, tangent = arguments_of(2048, 192), values(2048, 192)
    found = compiled_gradients(layer_norm, arguments, tangent, dynamic=True)
    torch.testing.assert_close(found, gradients(layer_norm, arguments, tangent), rtol=1e-4, atol=1e-3)


def test_infinities_and_nan_stay_in_their_rows_and_columns() -> None:
    (x, weight, bias), tangent = arguments_of(1024, 480), values(1024, 480)
    tangent[3, 5], tangent[900, 7], tangent[901, 7], x[17, 2] = nan, inf, -inf, nan
    found = compiled_gradients(layer_norm, (x, weight, bias), tangent)
    expected = gradients(layer_norm, (x, weight, bias), tangent)
    finite = torch.tensor([row not in (3, 17, 900, 901) for row in range(1024)])
    torch.testing.assert_close(found[0][finite], expected[0][finite], rtol=1e-4, atol=1e-3)
    assert not found[0][~finite].isfinite().all(1).any()
    torch.testing.assert_close(found[1:], expected[1:], equal_nan=True, rtol=1e-4, atol=1e-3)


def test_rows_that_are_not_contiguous() -> None:
    (x, weight, bias), tangent = arguments_of(1024, 480), values(1024, 960)[:, ::2]
    found = compiled_gradients(layer_norm, (x.t().contiguous().t(), weight, bias), tangent)
    expected = gradients(layer_norm, (x, weight, bias), tangent)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)


def test_one_kernel_reduces_rows_and_adds_up_columns() -> None:
    assert adding_kernels(layer_norm, *arguments_of(4096, 256)) == [2]
    assert adding_kernels(rms_norm, *arguments_of(8, 512, 256)) == [2]


def test_repeated_calls_give_the_same_bits() -> None:
    arguments, tangent = arguments_of(4096, 256), values(4096, 256)
    torch._dynamo.reset()
    compiled = torch.compile(layer_norm, backend="litz")
    first = gradients(compiled, arguments, tangent)
    for _ in range(5):
        assert all(map(torch.equal, gradients(compiled, arguments, tangent), first))
