"""Embedding bags and their gradients against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lowering_check import check_gradients
from lowering_graphs import check, operations, run

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
    check_gradients(lambda w, s, i, o: function(w, i, o, s), WEIGHT, SHARES, INDICES, OFFSETS, constants=2)


@pytest.mark.parametrize(
    "how",
    [
        {"mode": "sum"},
        {"mode": "mean", "padding_idx": 2},
        {"mode": "mean", "include_last_offset": True},
        {"mode": "max", "padding_idx": 4},
        {"mode": "sum", "scale_grad_by_freq": True},
        {"mode": "mean", "scale_grad_by_freq": True, "padding_idx": 2},
    ],
    ids=str,
)
def test_gradients_of_bags(how: dict[str, Any]) -> None:
    offsets = torch.tensor([0, 2, 2, 7])
    check_gradients(lambda w, i, o: F.embedding_bag(i, w, o, **how), WEIGHT, INDICES, offsets, constants=2)


def test_empty_bags() -> None:
    check(lambda w, i, o: F.embedding_bag(i, w, o), WEIGHT, INDICES[:0], torch.tensor([0, 0]))


def test_bags_with_symbolic_sizes() -> None:
    check(lambda w, i, o: F.embedding_bag(i, w, o, mode="mean"), WEIGHT, INDICES, OFFSETS, dynamic=True)


@pytest.mark.parametrize("mode", ["mean", "max"])
@pytest.mark.parametrize(
    "wrong", [(torch.tensor([1, 10]), OFFSETS[:1]), (INDICES, OFFSETS[1:]), (INDICES, OFFSETS * 2)]
)
def test_errors_of_eager(wrong: tuple[torch.Tensor, torch.Tensor], mode: str) -> None:
    for call in (lambda f, *a: f(*a), run):
        with pytest.raises(RuntimeError):
            call(lambda w, i, o: F.embedding_bag(i, w, o, mode=mode), WEIGHT, *wrong)


def test_maximum_takes_no_per_sample_weights() -> None:
    arguments = (WEIGHT, INDICES, OFFSETS, False, 2, False, SHARES)
    for call in (lambda f, *a: f(*a), run):
        with pytest.raises(RuntimeError, match="per_sample_weights only supported with mode='sum'"):
            call(torch.ops.aten._embedding_bag, *arguments)


NAN, INF = float("nan"), float("inf")
HARD = torch.tensor(
    [[1.0, NAN, -0.0], [NAN, 2.0, 0.0], [3.0, -INF, 0.0], [-1.0, -INF, NAN], [-INF, 5.0, 3.0]]
)
CHOSEN = torch.tensor([0, 1, 2, 3, 4, 4, 1, 0, 2])
STARTS = torch.tensor([0, 3, 3, 5, 6])


def same_zeros(*results: torch.Tensor) -> list[torch.Tensor]:
    """Results and their signs, which distinguish zeros; the sign of NaN is ignored."""
    return [*results, *(torch.signbit(torch.nan_to_num(r)) for r in results)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_maximum_of_bags(dtype: torch.dtype) -> None:
    def function(w: torch.Tensor, i: torch.Tensor, o: torch.Tensor) -> list[torch.Tensor]:
        bags, results = torch.ops.aten._embedding_bag, []
        for padding, last in ((-1, False), (2, False), (4, True)):
            values, *others = bags(w, i, o, False, 2, False, None, last, padding)
            results += [*same_zeros(values), *others]
        narrow = torch.ops.aten._embedding_bag_forward_only(w, i.int(), o.int(), False, 2)
        return [*results, *narrow, *bags(w, i[:0], o[:1], False, 2)]

    check(function, HARD.to(dtype), CHOSEN, STARTS, rtol=0, atol=0)


@pytest.mark.parametrize("dynamic", [False, True])
def test_maximum_of_rows_of_indices(dynamic: bool) -> None:
    def function(w: torch.Tensor, i: torch.Tensor) -> list[torch.Tensor]:
        return same_zeros(
            F.embedding_bag(i, w, mode="max"), F.embedding_bag(i, w.t()[:, :3], mode="max", padding_idx=0)
        )

    found = check(function, HARD, CHOSEN.view(3, 3).clamp(max=2), dynamic=dynamic, rtol=0, atol=0)
    assert dynamic or "Scatter" not in operations(found)


def test_gradients_of_maximum_with_an_empty_table() -> None:
    """Regression: an empty bag's gradient read row 0 of an empty table."""
    empty = torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64), torch.tensor([0, 0])
    check_gradients(lambda w, i, o: F.embedding_bag(i, w, o, mode="max"), *empty, constants=2)


def test_gradients_by_frequency_of_many_indices() -> None:
    """The divisor is in general the frequency of another row, as in eager."""
    random = torch.Generator().manual_seed(0)
    indices = torch.randint(0, 10, (60,), generator=random)
    offsets = torch.cat((OFFSETS[:1], torch.randint(0, 61, (12,), generator=random).sort()[0]))
    shares = torch.rand(60, generator=random)

    def function(w: torch.Tensor, s: torch.Tensor, i: torch.Tensor, o: torch.Tensor) -> torch.Tensor:
        return F.embedding_bag(i, w, o, mode="sum", scale_grad_by_freq=True, per_sample_weights=s)

    check_gradients(function, WEIGHT, shares, indices, offsets, constants=2)


def test_gradients_of_listed_bags() -> None:
    def function(grad: torch.Tensor, *listed: torch.Tensor) -> list[torch.Tensor]:
        backward = torch.ops.aten._embedding_bag_dense_backward
        return [
            backward(grad, *listed, 5, by_frequency, mode, None, padding)
            for mode, by_frequency, padding in ((0, False, 1), (0, True, -1), (1, True, 1), (2, False, -1))
        ]

    sizes, rows = torch.tensor([1, 2, 0]), torch.tensor([[1, 1], [2, 1], [0, 0]])
    check(function, torch.randn(3, 2), torch.tensor([1, 2, 1]), torch.tensor([0, 1, 1]), sizes, rows)
