"""What a mask chooses, read in order from other tensors, against eager."""

from __future__ import annotations

import pytest
import torch
from lowering_graphs import check, converted, run

aten = torch.ops.aten
X = torch.randn(4, 5)
MASK = torch.tensor([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [0, 1, 0, 0, 1]], dtype=torch.bool)
ROWS = torch.tensor([True, False, True, True])
COUNT = int(MASK.sum())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.bool])
@pytest.mark.parametrize("accumulate", [False, True])
def test_a_value_for_each_element_under_a_mask(dtype: torch.dtype, accumulate: bool) -> None:
    x, values = converted(X, dtype), converted(torch.randn(COUNT), dtype)
    check(lambda x, m, v: aten.index_put(x, [m], v, accumulate), x, MASK, values)
    rows = converted(torch.randn(3, 5), dtype)
    check(lambda x, m, v: aten.index_put(x, [m], v, accumulate), x, ROWS, rows)
    check(lambda x, m, v: aten.index_put(x, [m], v[:, :1], accumulate), x, ROWS, rows)
    check(lambda x, m, v: aten.index_put(x, [m], v[0], accumulate), x, ROWS, rows)


def test_a_mask_of_inner_dimensions() -> None:
    x, values = torch.randn(2, 4, 5, 3), torch.randn(2, COUNT, 3)
    check(lambda x, m, v: aten.index_put(x, [None, m], v), x, MASK, values)
    check(lambda x, m, v: aten.index_put(x, [None, m], v, True), x, MASK, values[:1, :, :1])
    check(lambda x, m, v: aten.index_put(x.permute(3, 2, 1, 0), [None, m.t()], v), x, MASK, values[0, :, :1])


def test_a_mask_that_chooses_nothing_or_is_empty() -> None:
    check(lambda x, m, v: aten.index_put(x, [m], v), X, ~MASK & MASK, torch.randn(0))
    check(lambda x, m, v: aten.index_put(x, [m], v), X[:0], MASK[:0], torch.randn(0))
    check(lambda x, m, s: x.masked_scatter(m, s), X, ~MASK & MASK, torch.randn(0))


@pytest.mark.parametrize("number", [COUNT - 1, COUNT + 1, 0])
def test_another_number_of_values_than_the_mask_chooses_raises(number: int) -> None:
    def put(x: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return aten.index_put(x, [m], v)

    values = torch.randn(number)
    with pytest.raises(RuntimeError, match="shape mismatch"):
        put(X, MASK, values)
    with pytest.raises(RuntimeError, match="shape mismatch"):
        run(put, X, MASK, values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_masked_scatter(dtype: torch.dtype) -> None:
    x, source = converted(X, dtype), converted(torch.randn(5, 4), dtype)
    check(lambda x, m, s: x.masked_scatter(m, s), x, MASK, source)
    check(lambda x, m, s: x.masked_scatter(m[:, None], s.t()), x, ROWS, source)
    check(lambda x, m, s: torch.masked_scatter(x[0], m, s), x, MASK, source)
    check(lambda x, m, s: x.masked_scatter(m, s), x, MASK, source, dynamic=True)


def test_masked_scatter_from_too_few_elements_raises() -> None:
    def scatter(x: torch.Tensor, m: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return x.masked_scatter(m, s)

    for source in (torch.randn(COUNT - 1), torch.randn(0)):
        with pytest.raises(RuntimeError, match="Number of elements of source < number of ones in mask"):
            scatter(X, MASK, source)
        with pytest.raises(RuntimeError, match="Number of elements of source < number of ones in mask"):
            run(scatter, X, MASK, source)
