"""Grid sampling and its gradients, in every interpolation and padding mode."""

from __future__ import annotations

import itertools

import pytest
import torch
from lowering_check import check, check_gradients
from torch.nn.functional import grid_sample

MODES_2D = list(itertools.product(("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")))
MODES_3D = list(itertools.product(("bilinear", "nearest"), ("zeros", "border", "reflection")))


def positions(*shape: int) -> torch.Tensor:
    """Coordinates inside and well outside of the input."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1)) * 4 - 2


@pytest.mark.parametrize(("mode", "padding"), MODES_2D)
@pytest.mark.parametrize("corners", [True, False])
def test_two_dimensions(mode: str, padding: str, corners: bool) -> None:
    check_gradients(
        lambda x, grid: grid_sample(x, grid, mode, padding, corners),
        torch.randn(2, 3, 4, 5), positions(2, 3, 6, 2), rtol=1e-4, atol=1e-5,
    )  # fmt: skip


@pytest.mark.parametrize(("mode", "padding"), MODES_3D)
@pytest.mark.parametrize("corners", [True, False])
def test_three_dimensions(mode: str, padding: str, corners: bool) -> None:
    check_gradients(
        lambda x, grid: grid_sample(x, grid, mode, padding, corners),
        torch.randn(1, 2, 3, 4, 2), positions(1, 3, 2, 2, 3), rtol=1e-4, atol=1e-5,
    )  # fmt: skip


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [True, False])
def test_a_dimension_of_one_element(padding: str, corners: bool) -> None:
    check(
        lambda x, g: grid_sample(x, g, "bilinear", padding, corners),
        torch.randn(1, 1, 1, 4),
        positions(1, 2, 3, 2),
    )


def test_a_nan_position_reads_the_first_element_with_border_padding() -> None:
    grid = torch.tensor([[[[float("nan"), 0.0], [0.5, float("inf")]]]])
    check(lambda x, g: grid_sample(x, g, "nearest", "border", True), torch.randn(1, 1, 3, 4), grid)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [True, False])
def test_cubic_weights_of_a_position_that_is_not_finite_are_nan(padding: str, corners: bool) -> None:
    grid = torch.tensor([[[[float("nan"), 0.0], [0.5, float("inf")], [0.25, -0.25]]]])
    check_gradients(
        lambda x, g: grid_sample(x, g, "bicubic", padding, corners), torch.randn(1, 2, 5, 4), grid,
        rtol=1e-4, atol=1e-5,
    )  # fmt: skip


def test_bfloat16() -> None:
    x, grid = torch.randn(1, 2, 4, 4).bfloat16(), positions(1, 3, 3, 2).bfloat16()
    check(lambda x, g: grid_sample(x, g, align_corners=True), x, grid, rounding=0.1)


@pytest.mark.parametrize(("mode", "padding"), MODES_2D)
@pytest.mark.parametrize("last", [False, True])
def test_corners_stored_for_all_channels(mode: str, padding: str, last: bool) -> None:
    x = torch.randn(2, 5, 4, 6)
    if last:
        x = x.to(memory_format=torch.channels_last)
    grid = positions(2, 3, 6, 2)
    x[:, :, 1, 2] = float("inf")
    grid[0, 0, 0, 0], grid[0, 0, 1, 1], grid[1, 0, 0, 0] = float("nan"), 1e30, float("-inf")
    check(lambda x, grid: grid_sample(x, grid, mode, padding, False), x, grid, rtol=1e-4, atol=1e-5)


def test_corners_of_volumes_stored_for_all_channels() -> None:
    grid = positions(2, 3, 2, 2, 3)
    check(lambda x, g: grid_sample(x, g, "bilinear", "zeros", True), torch.randn(2, 4, 3, 4, 2), grid)
