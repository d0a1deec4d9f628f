"""Operators whose result size depends on values, against eager."""

from __future__ import annotations

import pytest
import torch
from lowering_graphs import check, run

X = torch.randn(4, 5)
TIMES = torch.tensor([1, 0, 3, 2])
NUMBERS = torch.tensor([3, 1, 1, 7, 0, 3])


def test_repeat_interleave() -> None:
    check(lambda x, t: torch.repeat_interleave(x, t, 0, output_size=6), X, TIMES)
    check(lambda t: torch.repeat_interleave(t, output_size=6), TIMES.int())
    check(lambda t: torch.repeat_interleave(t, output_size=0), TIMES * 0)


@pytest.mark.parametrize(
    ("times", "size", "message"),
    [
        (TIMES - 1, 2, "repeats can not be negative"),
        (TIMES, 7, "allocated size does not match required size"),
    ],
)
def test_repeat_interleave_errors(times: torch.Tensor, size: int, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        run(lambda t: torch.repeat_interleave(t, output_size=size), times)


def test_bincount() -> None:
    check(lambda n: (torch.bincount(n), torch.bincount(n, minlength=12)), NUMBERS, dynamic=True)
    check(lambda n, w: torch.bincount(n, w), NUMBERS, torch.rand(6), dynamic=True)
    check(lambda n, w: torch.bincount(n, w), NUMBERS.to(torch.uint8), torch.arange(6), dynamic=True)
