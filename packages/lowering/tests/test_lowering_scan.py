"""Cumulative operations against eager: equal elements, NaN, infinities, sizes 0 and 1."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from lowering_check import check, check_gradients
from lowering_graphs import converted, operations

NAN, INF = math.nan, math.inf
DTYPES = [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool]
EXTREMES = [torch.cummax, torch.cummin]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("running", EXTREMES)
def test_cumulative_extremes(running: Callable[..., tuple[torch.Tensor, ...]], dtype: torch.dtype) -> None:
    x = converted(torch.randn(3, 5, 4), dtype)
    found = check(lambda x: (*running(x, 1), *running(x, -1), *running(x.transpose(0, 2), 0)), x)
    assert operations(found).count("Scan") == 3


@pytest.mark.parametrize("running", EXTREMES)
def test_the_last_of_equal_elements_and_the_last_nan_win(
    running: Callable[..., tuple[torch.Tensor, ...]],
) -> None:
    check(lambda x: running(x, 0), torch.tensor([2.0, 3, 3, 1, 1, NAN, 5, NAN, -INF, INF]))
    check(lambda x: running(x, 0), torch.tensor([[-INF, INF, NAN], [-INF, INF, 1.0], [0.0, -0.0, NAN]]))
    check(lambda x: running(x, 0), torch.tensor([-(2**63), 2**63 - 1, 0, -(2**63), 2**63 - 1]))


@pytest.mark.parametrize(
    "running", [*EXTREMES, lambda x, d: (torch.logcumsumexp(x, d), x.cumsum(d), x.cumprod(d))]
)
def test_0d_empty_and_one_element_tensors(running: Callable[..., tuple[torch.Tensor, ...]]) -> None:
    for shape in [(), (0,), (1,), (0, 3), (3, 0), (1, 3)]:
        check(lambda x: running(x, 0), torch.randn(shape))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_logcumsumexp(dtype: torch.dtype) -> None:
    x = (torch.randn(4, 9) * 20).to(dtype)
    check(lambda x: (torch.logcumsumexp(x, 0), torch.logcumsumexp(x, -1)), x, rounding=2e-2)
    special = torch.tensor([-INF, -INF, 1, INF, 2, -INF, NAN, 3], dtype=dtype)
    check(lambda x: (torch.logcumsumexp(x, 0), torch.logcumsumexp(x[2:], 0)), special, rounding=1e-2)


def test_scans_with_symbolic_sizes() -> None:
    check(lambda x: (*torch.cummax(x, 1), torch.logcumsumexp(x, 0)), torch.randn(4, 5), dynamic=True)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.cummax(x, 1)[0],
        lambda x: torch.cummin(x, 0)[0],
        lambda x: torch.logcumsumexp(x, 1),
        lambda x: torch.cumsum(x, 0),
        lambda x: torch.cumprod(x, 1),
    ],
)
def test_gradients_of_scans(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    check_gradients(function, torch.randn(4, 5))
