"""Bags of embeddings and their gradients against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lowering_check import check_gradients
from lowering_graphs import check, lowered, operations, reasons, run

WEIGHT = torch.randn(10, 3)
INDICES = torch.tensor([1, 2, 4, 5, 4, 2, 0])
OFFSETS = torch.tensor([0, 2, 2, 6])
SHARES = torch.rand(7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags(mode: str, dtype: torch.dtype) -> None:
    def function(w: torch.Tensor, i: torch.Tensor, o: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.embedding_bag(i, w, o, mode=mode),
            F.embedding_bag(i, w, o, mode=mode, padding_idx=2),
            F.embedding_bag(i, w, torch.cat([o, o[-1:] + 1]), mode=mode, include_last_offset=True),
            F.embedding_bag(i, w, torch.cat([o, o[-1:] + 1]), mode=mode),
            F.embedding_bag(i.int(), w, o.int(), mode=mode),
        ]

    check(function, WEIGHT.to(dtype), INDICES, OFFSETS)


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_rows_of_indices_are_reduced(mode: str) -> None:
    rows = torch.tensor([[1, 2, 2], [0, 9, 2]])
    found = check(lambda w, i: F.embedding_bag(i, w, mode=mode, padding_idx=2), WEIGHT, rows)
    assert "Scatter" not in operations(found)
    check(
        lambda w, i, s: F.embedding_bag(i, w, mode="sum", per_sample_weights=s),
        WEIGHT,
        rows,
        torch.rand(2, 3),
    )


def test_weights_of_each_index() -> None:
    def function(w: torch.Tensor, i: torch.Tensor, o: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return F.embedding_bag(i, w, o, mode="sum", per_sample_weights=s, padding_idx=4)

    check(function, WEIGHT, INDICES, OFFSETS, SHARES)
    check_gradients(lambda w, s, i, o: function(w, i, o, s), WEIGHT, SHARES, INDICES, OFFSETS, held=2)


@pytest.mark.parametrize(
    "how",
    [
        {"mode": "sum"},
        {"mode": "mean", "padding_idx": 2},
        {"mode": "mean", "include_last_offset": True},
    ],
)
def test_gradients_of_bags(how: dict[str, Any]) -> None:
    offsets = torch.tensor([0, 2, 2, 7])
    check_gradients(lambda w, i, o: F.embedding_bag(i, w, o, **how), WEIGHT, INDICES, offsets, held=2)


def test_bags_of_no_index() -> None:
    check(lambda w, i, o: F.embedding_bag(i, w, o), WEIGHT, INDICES[:0], torch.tensor([0, 0]))


def test_bags_with_symbolic_sizes() -> None:
    check(lambda w, i, o: F.embedding_bag(i, w, o, mode="mean"), WEIGHT, INDICES, OFFSETS, dynamic=True)


@pytest.mark.parametrize("wrong", [(torch.tensor([1, 10]), OFFSETS[:1]), (INDICES, OFFSETS[1:])])
def test_what_eager_refuses(wrong: tuple[torch.Tensor, torch.Tensor]) -> None:
    for call in (lambda f, *a: f(*a), run):
        with pytest.raises((RuntimeError, IndexError)):
            call(lambda w, i, o: F.embedding_bag(i, w, o), WEIGHT, *wrong)


def test_the_largest_of_a_bag_is_left_to_aten() -> None:
    found = lowered(lambda w, i, o: F.embedding_bag(i, w, o, mode="max"), WEIGHT, INDICES, OFFSETS)
    assert reasons(found) == ["the largest of a bag, whose place is wanted too"]
