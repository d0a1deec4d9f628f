"""Histograms against eager: given ranges and those of the values, values out of range, and errors."""

from __future__ import annotations

import math

import pytest
import torch
from lowering_graphs import check, lowered, operations, run

VALUES = torch.tensor([-0.5, 0.0, 0.1, 0.25, 0.25, 0.999, 1.0, 1.5, 2.0, math.nan, math.inf, -math.inf])
FINITE = VALUES[:9]


def test_given_ranges() -> None:
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.float64):
        check(lambda x: torch.histc(x, 4, 0, 2), VALUES.to(dtype))
        check(lambda x: torch.histc(x, 7, 0.1, 1.5), VALUES.to(dtype))
        check(lambda x: torch.histc(x, 7, 1, 1 + 1e-12), VALUES.to(dtype))
        check(lambda x: torch.histc(x, 97, -2, 2), torch.randn(20, 30, dtype=dtype))


def test_range_of_the_values() -> None:
    check(lambda x: torch.histc(x, 5), FINITE, dynamic=True)
    check(lambda x: torch.histc(x, 5, 1, 1), FINITE)
    check(lambda x: torch.histc(x, 4), torch.full((2, 3), 2.0))
    check(lambda x: torch.histc(x, 4), torch.tensor(3.0))
    check(lambda x: torch.histc(x, 4), torch.empty(0))


@pytest.mark.parametrize(
    "values", [VALUES[:10], VALUES[7:9].reciprocal() * math.inf], ids=("nan", "infinite")
)
def test_values_without_a_finite_range_raise(values: torch.Tensor) -> None:
    with pytest.raises(RuntimeError, match="is not finite"):
        run(lambda x: torch.histc(x, 4), values)


def test_ranges_and_dtypes_that_fall_back() -> None:
    assert operations(lowered(lambda x: torch.histc(x, 4, 0, 1), FINITE.bfloat16())) == ["Extern"]
    with pytest.raises(RuntimeError, match=r"inf.* is not finite"):
        run(lambda x: torch.histc(x, 4, 0, math.inf), FINITE)
