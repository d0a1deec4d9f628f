"""Masked selection and assignment against eager."""

from __future__ import annotations

from collections.abc import Callable

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


def test_an_empty_mask_or_selection() -> None:
    check(lambda x, m, v: aten.index_put(x, [m], v), X, ~MASK & MASK, torch.randn(0))
    check(lambda x, m, v: aten.index_put(x, [m], v), X[:0], MASK[:0], torch.randn(0))
    check(lambda x, m, s: x.masked_scatter(m, s), X, ~MASK & MASK, torch.randn(0))


@pytest.mark.parametrize("number", [COUNT - 1, COUNT + 1, 0])
def test_a_wrong_number_of_values_raises(number: int) -> None:
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


# --- with other index tensors ------------------------------------------

CUBE = torch.randn(4, 5, 3, 6)
COLUMNS = torch.tensor([True, False, True, True, False])
THIRDS = torch.tensor([0, 2, -2])
TWO = torch.tensor([2])


@pytest.mark.parametrize(
    "function",
    [
        lambda x, r, c, i: x[r, i[:1]],
        lambda x, r, c, i: x[r, i[:, None]],
        lambda x, r, c, i: x[:, c, :, i[:, None]],
        lambda x, r, c, i: x[:, :4][r, r],
        lambda x, r, c, i: x[r[:, None] & c, i[2:]],
        lambda x, r, c, i: x[i[:1], :, c[:3]],
        lambda x, r, c, i: (x[r], x[:, c], x[r, c], x[r, i]),
    ],
)
def test_masks_with_other_index_tensors(function: Callable[..., object]) -> None:
    check(function, CUBE, ROWS, COLUMNS, THIRDS, dynamic=True, allowed=("aten.nonzero",))


NONE = torch.zeros(4, dtype=torch.bool)
ONE = torch.tensor([False, False, True, False])


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize(
    ("indices", "values"),
    [
        ((ROWS, THIRDS), torch.randn(3, 3, 6)),
        ((ROWS, THIRDS), torch.randn(1, 6)),
        ((ROWS, COLUMNS), torch.randn(3, 1, 1)),
        ((ROWS, THIRDS[:, None]), torch.randn(3, 3, 3, 6)),
        ((None, COLUMNS, None, THIRDS), torch.randn(3, 1, 3)),
        ((MASK, TWO), torch.randn(COUNT, 6)),
        ((ONE, THIRDS), torch.randn(3, 3, 6)),
        ((ONE, COLUMNS), torch.randn(3, 3, 6)),
        ((ROWS, ONE.repeat(2)[1:6]), torch.randn(3, 3, 6)),
        ((NONE, COLUMNS & False), torch.randn(1, 3, 6)),
        ((NONE, TWO + 90), torch.randn(0, 3, 6)),
        ((ROWS.to(torch.uint8), THIRDS.to(torch.int32)), torch.randn(3, 3, 6)),
    ],
)
@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
def test_values_put_by_masks_and_index_tensors(
    indices: tuple[torch.Tensor | None, ...], values: torch.Tensor, accumulate: bool
) -> None:
    given = [index for index in indices if index is not None]

    def put(x: torch.Tensor, v: torch.Tensor, *some: torch.Tensor) -> torch.Tensor:
        given_indices = iter(some)
        return aten.index_put(x, [None if i is None else next(given_indices) for i in indices], v, accumulate)

    check(put, CUBE, values, *given, dynamic=True, allowed=("aten.nonzero",))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_values_of_any_dtype_put_by_masks(dtype: torch.dtype) -> None:
    x, values = converted(CUBE, dtype), converted(torch.randn(3, 3, 6), dtype)
    for accumulate in (False, True):
        check(
            lambda x, r, c, v, a=accumulate: aten.index_put(x, [r, c], v, a), x, ROWS, COLUMNS, values,
            allowed=("aten.nonzero",), dynamic=True,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("indices", "values", "error"),
    [
        ((ROWS, torch.arange(4)), torch.ones(()), IndexError),
        ((NONE, THIRDS), torch.ones(()), IndexError),
        ((ROWS, COLUMNS & False), torch.ones(()), IndexError),
        ((ROWS, THIRDS), torch.ones(2, 3, 6), RuntimeError),
        ((NONE, TWO), torch.ones(3, 3, 6), RuntimeError),
        ((ROWS, THIRDS + 9), torch.ones(()), IndexError),
        ((ROWS, THIRDS + 9), torch.ones(2, 3, 6), RuntimeError),
    ],
)
def test_masks_that_do_not_fit_raise_as_in_eager(
    indices: tuple[torch.Tensor, ...], values: torch.Tensor, error: type[Exception]
) -> None:
    def put(x: torch.Tensor, v: torch.Tensor, *indices: torch.Tensor) -> torch.Tensor:
        return aten.index_put(x, list(indices), v)

    for function in (put, lambda *args: run(put, *args)):
        with pytest.raises(error) as raised:
            function(CUBE, values, *indices)
        assert isinstance(raised.value, IndexError) == (error is IndexError)


def test_a_broadcast_value_of_data_dependent_size() -> None:
    def put(x: torch.Tensor, m: torch.Tensor, v: torch.Tensor, one: torch.Tensor) -> torch.Tensor:
        return aten.index_put(x, [m], v[one])

    check(put, CUBE, ROWS, CUBE, ONE, dynamic=True, allowed=("aten.nonzero",))
