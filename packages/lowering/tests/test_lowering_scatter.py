"""Writes through index tensors and into parts of tensors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from lowering_graphs import check, converted, operations, run

from litz_ir.errors import ValueRefused

aten = torch.ops.aten
X = torch.randn(4, 5)
INDEX = torch.tensor([[0, 3, 1, 0, 2], [2, 3, 3, 0, 0]])
SRC = torch.randn(3, 5)
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.uint8]
REDUCES = ["sum", "prod", "amin", "amax"]


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bool])
def test_scatter(dtype: torch.dtype) -> None:
    x, src = converted(X, dtype), converted(SRC, dtype)
    index = torch.stack([torch.randperm(4) for _ in range(5)], 1)[:3]
    found = check(lambda x, i, s: aten.scatter(x, 0, i, s), x, index, src)
    assert operations(found) == ["Scatter"]
    check(lambda x, i: aten.scatter(x, -1, i[:, :2], 1), x, INDEX)


@pytest.mark.parametrize("dtype", DTYPES)
def test_scatter_add(dtype: torch.dtype) -> None:
    check(lambda x, i, s: aten.scatter_add(x, 0, i, s), converted(X, dtype), INDEX, converted(SRC, dtype))
    check(
        lambda x, i, s: aten.scatter_add(x, 1, i, s), converted(X, dtype), INDEX[:, :3], converted(SRC, dtype)
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_scatter_reduce(dtype: torch.dtype) -> None:
    def function(x: torch.Tensor, i: torch.Tensor, s: torch.Tensor) -> list[torch.Tensor]:
        return [
            aten.scatter_reduce(x, 0, i, s, reduce, include_self=include_self)
            for reduce in REDUCES
            for include_self in (True, False)
        ]

    check(function, converted(X, dtype), INDEX, converted(SRC, dtype))


def test_scatter_with_a_named_operation() -> None:
    check(lambda x, i, s: aten.scatter(x, 0, i, s, reduce="multiply"), X, INDEX, SRC)
    check(lambda x, i: aten.scatter(x, 0, i, 2.5, reduce="add"), X, INDEX)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int8])
def test_scattered_means(dtype: torch.dtype) -> None:
    x, src = converted(X * 3, dtype), converted(SRC * 3, dtype)

    def function(x: torch.Tensor, i: torch.Tensor, s: torch.Tensor) -> list[torch.Tensor]:
        both = [aten.scatter_reduce(x, 0, i, s, "mean", include_self=own) for own in (True, False)]
        return both + [
            aten.index_reduce(x, 0, i[0, :3], s, "mean", include_self=own) for own in (True, False)
        ]

    check(function, x - 3, INDEX, src)


def test_a_mean_of_integers_is_rounded_down_and_its_sum_wraps() -> None:
    x, src = torch.tensor([-5, 6, 250], dtype=torch.uint8), torch.tensor([250, 250, 3], dtype=torch.uint8)
    check(lambda x, i, s: aten.scatter_reduce(x, 0, i, s, "mean"), x, torch.tensor([0, 0, 1]), src)
    x, src = torch.tensor([-5, 6, -1]), torch.tensor([-4, 2, -2])
    check(lambda x, i, s: aten.scatter_reduce(x, 0, i, s, "mean"), x, torch.tensor([0, 0, 2]), src)


def test_bools_combined() -> None:
    x, src = torch.tensor([True, False, False, True]), torch.tensor([False, True, True, False, False])
    index = torch.tensor([0, 1, 1, 3, 3])

    def function(x: torch.Tensor, i: torch.Tensor, s: torch.Tensor) -> list[torch.Tensor]:
        return [
            *(aten.scatter_reduce(x, 0, i, s, r, include_self=own) for own in (True, False) for r in REDUCES),
            aten.scatter_add(x, 0, i, s),
            aten.scatter(x, 0, i, s, reduce="multiply"),
            aten.scatter(x, 0, i, True, reduce="add"),
            aten.index_add(x, 0, i, s),
            aten.index_add(x, 0, i, s, alpha=False),
            aten.index_put(x, [i], s, True),
            aten.put(x, i, s, True),
        ]

    check(function, x, index, src)


def test_nan_and_infinities_combined() -> None:
    nan, inf = float("nan"), float("inf")
    x, src = torch.tensor([1.0, nan, inf, 2.0]), torch.tensor([nan, 3.0, -inf, inf, -0.0])
    index = torch.tensor([0, 1, 2, 3, 3])

    def function(x: torch.Tensor, i: torch.Tensor, s: torch.Tensor) -> list[torch.Tensor]:
        return [
            aten.scatter_reduce(x, 0, i, s, r, include_self=own)
            for own in (True, False)
            for r in (*REDUCES, "mean")
        ]

    check(function, x, index, src)


@pytest.mark.parametrize("shapes", [((), ()), ((), (1,)), ((1,), ())])
def test_a_0d_tensor_counts_as_one_element(
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    x, src, index = torch.randn(shapes[0]), torch.randn(shapes[1]), torch.zeros(shapes[1], dtype=torch.int64)

    def function(x: torch.Tensor, i: torch.Tensor, s: torch.Tensor) -> list[torch.Tensor]:
        return [
            *(aten.scatter_reduce(x, 0, i, s, r, include_self=own) for own in (True, False) for r in REDUCES),
            aten.scatter(x, -1, i, s),
            aten.scatter(x, 0, i, 3.0),
            aten.index_add(x, 0, i, s.reshape(x.shape)),
            aten.index_copy(x, 0, i, s.reshape(x.shape)),
            aten.index_fill(x, 0, i, 2.0),
            aten.put(x, i, s),
            aten.gather(x, 0, i),
            aten.index_select(x, 0, i),
        ]

    check(function, x, index, src)


def test_an_empty_index_changes_nothing() -> None:
    index = torch.zeros(0, 3, dtype=torch.int64)
    check(lambda x, i, s: (aten.scatter_add(x, 0, i, s), aten.gather(x, 0, i)), X[0], index, SRC[:0, :3])


@pytest.mark.parametrize("bad", [-1, 4])
def test_scatter_outside_raises(bad: int) -> None:
    index = torch.full_like(INDEX, bad)
    with pytest.raises(ValueRefused, match=f"index {bad}"):
        run(lambda x, i, s: aten.scatter_add(x, 0, i, s), X, index, SRC)


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_one_write_into_a_fill_is_pointwise(value: float) -> None:
    index = torch.tensor([[1], [3], [0]])

    def function(i: torch.Tensor) -> torch.Tensor:
        return aten.scatter(torch.full((3, 4), value), 1, i, 2.0)

    found = check(function, index)
    assert "Scatter" not in operations(found)
    check(lambda i: aten.scatter_add(torch.ones(3, 4), 1, i, torch.full((3, 1), 2.0)), index)
    with pytest.raises(ValueRefused):
        run(function, index + 2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_index_add_and_copy(dtype: torch.dtype) -> None:
    x, source = converted(X, dtype), converted(SRC, dtype)
    index = torch.tensor([3, 0, 3])
    check(lambda x, i, s: aten.index_add(x, 0, i, s), x, index, source)
    check(lambda x, i, s: aten.index_add(x, 0, i, s, alpha=2), x, index, source)
    check(lambda x, i, s: aten.index_copy(x, 0, i, s), x, torch.tensor([3, 0, 1]), source)
    check(lambda x, i, s: aten.index_add(x, 0, i, s[:1]), x, torch.tensor(2), source)


def test_index_reduce() -> None:
    def function(x: torch.Tensor, i: torch.Tensor, s: torch.Tensor) -> list[torch.Tensor]:
        return [
            aten.index_reduce(x, 0, i, s, reduce, include_self=include_self)
            for reduce in ("prod", "amin", "amax")
            for include_self in (True, False)
        ]

    check(function, X, torch.tensor([3, 0, 3]), SRC)


def test_index_fill_counts_negative_indices_from_the_end() -> None:
    check(lambda x, i: aten.index_fill(x, 1, i, 3), X, torch.tensor([0, -1]))
    check(lambda x, i, v: aten.index_fill(x, 1, i, v), X, torch.tensor(2), torch.tensor(3.5))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put(dtype: torch.dtype, accumulate: bool) -> None:
    x = converted(X, dtype)
    rows, columns = torch.tensor([0, -1, 2]), torch.tensor([[4], [1]])
    values = converted(torch.randn(2, 3), dtype)
    check(lambda x, r, c, v: aten.index_put(x, [r, c], v, accumulate), x, rows, columns, values)
    check(lambda x, c, v: aten.index_put(x, [None, c.flatten()], v, accumulate), x, columns, values[0, 0])


def test_index_put_accumulates_equal_indices() -> None:
    check(lambda x, i, v: aten.index_put(x, [i], v, True), X, torch.tensor([1, 1, -3]), SRC)


def test_put() -> None:
    index = torch.tensor([0, -1, 7])
    check(lambda x, i, s: aten.put(x, i, s), X, index, torch.randn(3))
    check(lambda x, i, s: aten.put(x, i, s, True), X, torch.tensor([0, -20, 7]), torch.randn(3))
    check(lambda x, i, s: aten.put(x, i, s), X, torch.tensor([[0, -20], [7, 1]]), torch.randn(4))


@pytest.mark.parametrize("accumulate", [False, True])
def test_one_value_under_a_mask_is_pointwise(accumulate: bool) -> None:
    found = check(lambda x, m, v: aten.index_put(x, [m], v, accumulate), X, X > 0, torch.tensor(7.0))
    assert operations(found) == ["Pointwise"]
    rows = torch.tensor([True, False, True, True])
    check(lambda x, m, v: aten.index_put(x, [m], v, accumulate), X, rows, torch.tensor([7.0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("padding", [-1, 2])
def test_embedding_backward(dtype: torch.dtype, padding: int) -> None:
    indices = torch.tensor([[2, 0, 2], [1, 2, 1]])
    grad = torch.randn(2, 3, 4).to(dtype)
    check(lambda g, i: aten.embedding_dense_backward(g, i, 5, padding, False), grad, indices)


@pytest.mark.parametrize("padding", [-1, 0])
def test_embedding_backward_by_frequency(padding: int) -> None:
    grad, indices = torch.randn(2, 3, 4), torch.tensor([[0, 0, 1], [4, 0, 1]])
    check(lambda g, i: aten.embedding_dense_backward(g, i, 5, padding, True), grad, indices)


def _parts(x: torch.Tensor, s: torch.Tensor) -> list[torch.Tensor]:
    return [
        aten.select_scatter(x, s[0, :4], 1, -2),
        aten.slice_scatter(x, s, 0, 1, 4),
        aten.slice_scatter(x, s[:2], 0, 0, 4, 2),
        aten.slice_scatter(x, s[:2], 0, -3, 9, 2),
        aten.slice_scatter(x, s[:0], 0, 3, 2),
        aten.diagonal_scatter(x, s[0, :4]),
        aten.diagonal_scatter(x, s[0, :3], -1, 0, 1),
        aten.diagonal_scatter(x, s[0, :3], 2, 0, 1),
        aten.select_backward(s, [2, 3, 5], 0, -1),
        aten.slice_backward(s[:, :4], [3, 9], 1, 1, 9, 2),
        aten.slice_backward(s, [3, 9], 1, 2, 7, 1),
        aten.diagonal_backward(s[:, :3], [4, 3, 5], -1, 0, 2),
    ]


def test_parts_replaced() -> None:
    found = check(_parts, X, SRC)
    assert "Scatter" not in operations(found)
    check(_parts, X.bfloat16(), SRC.bfloat16())


def test_scatter_with_symbolic_sizes() -> None:
    check(lambda x, i, s: aten.scatter_add(x, 0, i, s), X, INDEX, SRC, dynamic=True)
    check(lambda x, s: aten.slice_scatter(x, s, 0, 1, 4), X, SRC, dynamic=True)
    check(lambda x, i, v: aten.index_put(x, [i], v, True), X, torch.tensor([1, 1, 3]), SRC, dynamic=True)


def _losses() -> list[Callable[..., torch.Tensor]]:
    return [
        lambda x, t, w: torch.nn.functional.cross_entropy(x, t),
        lambda x, t, w: torch.nn.functional.cross_entropy(x, t, w, ignore_index=1, reduction="sum"),
        lambda x, t, w: torch.nn.functional.cross_entropy(x, t, w, reduction="none"),
        lambda x, t, w: torch.nn.functional.nll_loss(x, t, w, ignore_index=-100),
    ]


@pytest.mark.parametrize("loss", _losses())
def test_losses_and_their_gradients(loss: Callable[..., torch.Tensor]) -> None:
    def step(x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        gradient: torch.Tensor = torch.func.grad(lambda x: loss(x, target, weight).sum())(x)
        return gradient

    target, weight = torch.tensor([1, 0, 4, 1]), torch.rand(5)
    check(loss, X, target, weight)
    found = check(step, X, target, weight)
    assert "Scatter" not in operations(found)
