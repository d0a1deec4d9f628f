"""Sorts on the CPU, which fall back to ATen with a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from lowering_graphs import check, lowered, reasons

from litz_lowering.aten.fallback_families import SORTS

X = torch.tensor([[3.0, 1.0, 2.0, 1.0], [0.0, -1.0, 5.0, 4.0]])


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: torch.sort(x, dim=1, stable=True), SORTS),
        (lambda x: torch.topk(x, 2), SORTS),
        (lambda x: torch.argsort(x, dim=0), SORTS),
    ],
)
def test_sorts(function: Callable[..., Any], reason: str) -> None:
    assert set(reasons(lowered(function, X))) == {reason}
    check(function, X, allowed=("aten.",))


def test_operators_after_a_sort_are_lowered() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        values, positions = torch.topk(x, 2)
        return torch.zeros_like(x).scatter(1, positions, values * 2)

    check(function, X, allowed=("aten.topk",))
