"""Searches in sorted values against eager: equal values, NaN, unsorted values, empty tensors."""

from __future__ import annotations

import math

import pytest
import torch
from lowering_graphs import check, lowered, reasons

NAN, INF = math.nan, math.inf
ORDERED = torch.tensor([-INF, -1.0, 0.0, 0.0, 0.0, 2.0, 5.0, INF])
VALUES = torch.tensor([[-2.0, -1.0, 0.0], [1.0, 5.0, 6.0], [INF, -INF, NAN]])
SIDES = [False, True]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8])
@pytest.mark.parametrize("right", SIDES)
def test_positions_in_sorted_values(dtype: torch.dtype, right: bool) -> None:
    ordered, values = (
        torch.nan_to_num(ORDERED, 0, 9, 0).to(dtype),
        torch.nan_to_num(VALUES, 0, 9, 0).to(dtype),
    )
    check(
        lambda s, v: (
            torch.searchsorted(s, v, right=right),
            torch.searchsorted(s, v, right=right, out_int32=True),
            torch.searchsorted(s[2:5], v, side="right"),
            torch.bucketize(v, s, right=right),
            torch.searchsorted(s, 2, right=right),
            torch.bucketize(1.5, s, right=right),
        ),
        ordered.abs().sort()[0],
        values.abs(),
    )


@pytest.mark.parametrize("right", SIDES)
def test_nan_infinities_and_values_out_of_order(right: bool) -> None:
    check(lambda s, v: torch.searchsorted(s, v, right=right), ORDERED, VALUES)
    check(
        lambda s, v: torch.searchsorted(s, v, right=right),
        torch.cat([ORDERED, torch.full((3,), NAN)]),
        VALUES,
    )
    check(
        lambda s, v: torch.searchsorted(s, v, right=right), torch.tensor([3.0, NAN, 1, 2, NAN, 0, 5]), VALUES
    )


def test_rows_of_their_own_and_a_sorter() -> None:
    rows = torch.randn(3, 7)
    check(lambda s, v: torch.searchsorted(s.sort(-1)[0], v), rows, VALUES[:, :2], allowed=("aten.sort",))
    check(lambda s, v, o: torch.searchsorted(s, v, sorter=o), rows, VALUES, rows.argsort(-1))


def test_no_values_and_one_value() -> None:
    check(lambda s, v: (torch.searchsorted(s[:0], v), torch.searchsorted(s[:1], v)), ORDERED, VALUES)
    check(lambda s, v: (torch.searchsorted(s, v[:0]), torch.searchsorted(s, v[0, 0])), ORDERED, VALUES)


def test_a_search_in_an_unbounded_number_of_values_falls_back() -> None:
    found = lowered(lambda s, v: torch.searchsorted(s, v), ORDERED, VALUES, dynamic=True)
    assert reasons(found) == ["the number of sorted values is unbounded"]


def test_search_in_many_values() -> None:
    ordered = torch.arange(1 << 17, dtype=torch.float32)
    check(lambda s, v: torch.searchsorted(s, v), ordered, torch.tensor([-1.0, 77.5, 1e5, 1e9]))
