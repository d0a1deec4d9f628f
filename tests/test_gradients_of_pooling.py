"""Gradients of max pooling on CPUs, as eager computes them, and at indices that eager does not check."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import adaptive_max_pool2d, max_pool1d, max_pool2d, max_pool3d

Pool = Callable[[Tensor], Tensor]

POOLS: dict[str, tuple[Pool, tuple[int, ...]]] = {
    "overlapping": (lambda x: max_pool2d(x.relu() * 2, 3, 2, 1).sin(), (2, 5, 9, 11)),
    "dilated": (lambda x: max_pool2d(x, (3, 2), (1, 3), (1, 0), 2, ceil_mode=True), (2, 5, 9, 11)),
    "without a batch": (lambda x: max_pool2d(x, 2), (3, 9, 11)),
    "adaptive": (lambda x: adaptive_max_pool2d(x, (4, 5)), (2, 3, 9, 11)),
    "of an empty batch": (lambda x: max_pool2d(x, 3, 2, 1), (0, 5, 9, 11)),
    "in threads": (lambda x: max_pool2d(x, 3, 2, 1), (1, 64, 40, 40)),
    "of rows": (lambda x: max_pool1d(x, 3, 1), (2, 3, 17)),
    "of volumes": (lambda x: max_pool3d(x, 3, 2, 1), (2, 3, 5, 6, 7)),
}


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", POOLS)
def test_gradients_agree_with_eager(name: str, last: bool, dtype: torch.dtype) -> None:
    pool, shape = POOLS[name]
    x = torch.randn(shape).to(dtype)
    if last and len(shape) == 4:
        x = x.to(memory_format=torch.channels_last)
    x.requires_grad_()
    expected = pool(x)
    tangent = torch.randn_like(expected)
    found = torch.compile(pool, backend="litz")(x)
    torch.testing.assert_close(found, expected)
    (own,), (eager,) = (torch.autograd.grad(each, x, tangent) for each in (found, expected))
    # Eager rounds a sum in bf16 at each addition.
    tolerance = 0.05 if dtype == torch.bfloat16 else None
    torch.testing.assert_close(own, eager, rtol=tolerance, atol=tolerance)
    assert own.stride() == eager.stride()


def test_infinities_and_nan_stay_at_their_elements() -> None:
    x, tangent = torch.randn(1, 2, 8, 8, requires_grad=True), torch.randn(1, 2, 4, 4)
    tangent[0, 0, 1, 1], tangent[0, 1, 2, 2] = float("inf"), float("nan")

    def pool(x: Tensor) -> Tensor:
        return max_pool2d(x, 3, 2, 1)

    (own,), (eager,) = (
        torch.autograd.grad(each(x), x, tangent) for each in (torch.compile(pool, backend="litz"), pool)
    )
    torch.testing.assert_close(own, eager, equal_nan=True)


def test_indices_outside_a_plane_write_no_other_memory() -> None:
    gradient, x = torch.ones(1, 1, 2, 2), torch.zeros(1, 1, 4, 4)
    indices = torch.tensor([[[[0, 99], [-7, 15]]]])

    def backward(gradient: Tensor, x: Tensor, indices: Tensor) -> Tensor:
        result: Tensor = torch.ops.aten.max_pool2d_with_indices_backward(
            gradient, x, [2, 2], [2, 2], [0, 0], [1, 1], False, indices
        )
        return result

    found = torch.compile(backward, backend="litz")(gradient, x, indices)
    assert found.sum() == 4 and found[0, 0, 0, 0] == 2 and found[0, 0, 3, 3] == 2
