"""Distances between rows, and their gradients, against eager."""

from __future__ import annotations

import math

import pytest
import torch
from lowering_check import check_gradients
from lowering_graphs import check, lowered, reasons

ORDERS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf)


def rows(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Values of which some are equal, so that some distances and differences are zero."""
    return (
        torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).round(decimals=0).to(dtype)
    )


@pytest.mark.parametrize("p", ORDERS)
def test_distances(p: float) -> None:
    check(lambda x, y: torch.cdist(x, y, p), rows(5, 4), rows(7, 4))
    check(lambda x, y: torch.cdist(x, y, p), rows(3, 1, 5, 4, dtype=torch.float64), rows(2, 7, 4).double())
    check(lambda x, y: torch.cdist(x, y, p), torch.empty(3, 0), torch.empty(2, 0))
    odd = torch.tensor([[1.0, math.nan, 0.0], [1.0, 2.0, math.inf], [0.0, -math.inf, 3.0]])
    check(lambda x, y: torch.cdist(x, y, p), odd, torch.tensor([[1.0, 2.0, 3.0], [math.inf, 0.0, math.inf]]))


@pytest.mark.parametrize("p", ORDERS)
def test_gradients(p: float) -> None:
    mode = "donot_use_mm_for_euclid_dist"
    check_gradients(lambda x, y: torch.cdist(x, y, p, compute_mode=mode), rows(5, 4), rows(7, 4))
    check_gradients(lambda x, y: torch.cdist(x, y, p, compute_mode=mode), rows(3, 1, 5, 4), rows(2, 7, 4))


def test_many_euclidean_distances_fall_back() -> None:
    x, y = rows(26, 3), rows(4, 3)
    distances = torch.ops.aten._cdist_forward
    assert reasons(lowered(lambda x, y: distances(x, y, 2.0, None), x, y)) == [
        "Euclidean distances of many rows are computed by a matmul"
    ]
    check(lambda x, y: distances(x, y, 2.0, 2), x, y)
