"""Fractional max pooling and its gradient."""

from __future__ import annotations

import pytest
import torch
from lowering_check import check, check_gradients

aten = torch.ops.aten


def samples(*shape: int) -> torch.Tensor:
    """One number in [0, 1) for each batch, channel and dimension."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("out", [[3, 4], [1, 2], [6, 5]])
def test_two_dimensions(batch: tuple[int, ...], out: list[int]) -> None:
    kernel = [2, 3]
    check_gradients(
        lambda x, s: aten.fractional_max_pool2d(x, kernel, out, s)[0],
        torch.randn(*batch, 3, 7, 7), samples(batch[0] if batch else 1, 3, 2), constants=1,
    )  # fmt: skip


def test_three_dimensions() -> None:
    check_gradients(
        lambda x, s: aten.fractional_max_pool3d(x, [2, 2, 3], [2, 3, 2], s)[0],
        torch.randn(2, 1, 5, 6, 6), samples(2, 1, 3), constants=1,
    )  # fmt: skip


def test_positions_of_nans_and_of_the_lowest_value() -> None:
    x = torch.randn(1, 1, 6, 6)
    x[0, 0, 2, 2:4] = float("nan")
    x[0, 0, 4:, :4] = -torch.inf
    check(lambda x, s: aten.fractional_max_pool2d(x, [2, 2], [3, 3], s), x, samples(1, 1, 2))
    check(lambda x, s: aten.fractional_max_pool2d(x, [6, 6], [1, 1], s), x, samples(1, 1, 2))
