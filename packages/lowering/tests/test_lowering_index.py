"""Reads through index tensors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from lowering_graphs import check, operations, run

from litz_ir.errors import IndexOutOfRange, KernelError, ValueRefused

aten = torch.ops.aten
X = torch.arange(2.0 * 3 * 4 * 5).reshape(2, 3, 4, 5)
ROWS = torch.tensor([[2, 0], [1, 2]])


@pytest.mark.parametrize("indices", [ROWS, ROWS.int(), torch.tensor(1), torch.empty(0, dtype=torch.int64)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_embedding(indices: torch.Tensor, dtype: torch.dtype) -> None:
    weight = torch.randn(3, 4).to(dtype)
    found = check(lambda w, i: aten.embedding(w, i, 1), weight, indices)
    assert operations(found) == ["Pointwise"]


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda x, i: aten.embedding(x, i), IndexOutOfRange),
        (lambda x, i: aten.index_select(x, 0, i), IndexOutOfRange),
        (lambda x, i: aten.gather(x, 0, i.unsqueeze(1)), ValueRefused),
    ],
)
@pytest.mark.parametrize("bad", [-1, 3])
def test_an_index_out_of_range_raises_as_in_eager(
    function: Callable[..., torch.Tensor], error: type[KernelError], bad: int
) -> None:
    x, i = torch.randn(3, 4), torch.tensor([0, bad])
    with pytest.raises(error, match=f"index {bad}") as caught:
        run(function, x, i)
    assert caught.value.origin.operation


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_index_select(dim: int) -> None:
    check(lambda x, i: aten.index_select(x, dim, i), X, torch.tensor([1, 0, 1, 1]))
    check(lambda x, i: aten.index_select(x, dim, i), X, torch.tensor(1))
    check(lambda x, i: aten.index_select(x, dim, i), X > 7, torch.tensor([1, 0]))


def test_gather() -> None:
    index = torch.randint(0, 3, (2, 2, 3, 5))
    check(lambda x, i: aten.gather(x, 1, i), X, index)
    check(lambda x, i: torch.take_along_dim(x, i, -3), X, torch.randint(0, 3, (2, 1, 4, 5)))
    check(lambda x, i: aten.gather(x, 1, i), X.to(torch.int16), index)


def test_gather_from_the_only_element_of_a_scalar() -> None:
    check(lambda x, i: aten.gather(x, 0, i), torch.tensor(1.0), torch.tensor(0))
    with pytest.raises(ValueRefused):
        run(lambda x, i: aten.gather(x, 0, i), torch.tensor(1.0), torch.tensor(1))


def test_take_counts_negative_positions_from_the_end() -> None:
    check(lambda x, i: aten.take(x, i), X, torch.tensor([[0, -1], [-120, 37]]))


A, B = torch.tensor([[1], [-1]]), torch.tensor([0, -2, 1])


@pytest.mark.parametrize(
    "indices",
    [
        (A,),
        (None, A),
        (A, B),
        (None, A, B),
        (A, None, B),
        (None, A, None, B),
        (None, None, None, B),
        (A, B, A, B),
        (torch.tensor(1), None, torch.tensor(-1)),
        (None, B.int()),
        (torch.empty(0, dtype=torch.int64),),
    ],
)
def test_advanced_indexing(indices: tuple[torch.Tensor | None, ...]) -> None:
    given = [index for index in indices if index is not None]

    def function(x: torch.Tensor, *some: torch.Tensor) -> torch.Tensor:
        given_indices = iter(some)
        return aten.index(x, [None if index is None else next(given_indices) for index in indices])

    check(function, X, *given)
    permuted = (X.permute(3, 1, 0, 2) > 50).contiguous()
    check(function, permuted, *given[:1] + [g.clamp(-2, 1) for g in given[1:]])


@pytest.mark.parametrize("bad", [-4, 3])
def test_advanced_indexing_outside_raises(bad: int) -> None:
    index = torch.tensor([0, bad])
    with pytest.raises(IndexOutOfRange, match="size 3"):
        run(lambda x, i: x[:, i], X, index)


def test_a_mask_gathers_at_the_positions_of_nonzero() -> None:
    x, mask = torch.randn(2, 4, 5, 3), torch.randn(4, 5) > 0
    for function in (
        lambda x, m: x[:, m],
        lambda x, m: x[0, :, :, 0][m],
        lambda x, m: x[:, :, m[0]],
        lambda x, m: torch.masked_select(x[0, :, :, 0], m),
        lambda x, m: torch.masked_select(x, m[:, :, None]),
        lambda x, m: torch.masked_select(x[0, 0, 0, 0], m),
    ):
        check(function, x, mask, dynamic=True, allowed=("aten.nonzero",))


def test_advanced_indexing_with_symbolic_sizes() -> None:
    check(lambda x, i: x[:, i], X, B.clamp(0), dynamic=True)


def test_unsafe_masked_index_reads_only_where_the_mask_is_true() -> None:
    index = torch.tensor([0, 2, 1])
    found = check(
        lambda x, m, i: aten._unsafe_masked_index(x, m, [None, i], 7.0),
        X, torch.tensor([True, False, True]).reshape(1, 3, 1, 1), index,
    )  # fmt: skip
    assert "Pointwise" in operations(found)
