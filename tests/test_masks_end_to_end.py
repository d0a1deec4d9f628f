"""Programs whose masks and counts decide sizes, compiled as one graph, against eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

import litz

X = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
MASK = X > 0
ROWS = torch.tensor([True, False, True, True])


@pytest.fixture(autouse=True)
def sizes_are_captured() -> Iterator[None]:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        torch._dynamo.reset()
        yield


def _doubled(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[mask] = x[mask] * 2
    return x


@pytest.mark.sampled
@pytest.mark.parametrize(
    "function",
    [
        lambda x, m, r: (torch.masked_select(x, m) * 2, torch.masked_select(x, r[:, None])),
        lambda x, m, r: (x[m].exp(), x[r] + 1, x[:, m[0]]),
        lambda x, m, r: (_doubled(x, m), _doubled(x, r)),
        lambda x, m, r: torch.ones(torch.masked_select(x, m).shape[0]),
        lambda x, m, r: torch.masked_select(x[0, 0], r),
        lambda x, m, r: torch.repeat_interleave(x, m.sum(1), 0) * 2,
        lambda x, m, r: torch.bincount(m.sum(0), minlength=3),
    ],
)
@pytest.mark.parametrize("dynamic", [None, True])
def test_what_masks_choose(function: Callable[..., object], dynamic: bool | None) -> None:
    with litz.config.patch(fallback="error"):
        compiled = torch.compile(function, backend="litz", fullgraph=True, dynamic=dynamic)
        for mask in (MASK, ~MASK, MASK & ~MASK):
            torch.testing.assert_close(compiled(X, mask, ROWS), function(X, mask, ROWS))


CUBE = torch.randn(4, 5, 3, 6, generator=torch.Generator().manual_seed(1))
COLUMNS = torch.tensor([True, False, True, True, False])
THIRDS, ONE_THIRD = torch.tensor([0, 2, -2]), torch.tensor([2])


def _put(given: torch.Tensor, r: torch.Tensor, c: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    x = given.clone()
    x[r, i] = 1.0
    x[r, i[:2, None], i] = given[:2, 0, i]
    x[:, c, :, i] = given[0, :3, :, :1].permute(0, 2, 1)
    x[r, c] = 2.0
    x.index_put_((r, c), given[0, :3], accumulate=True)
    return x


@pytest.mark.parametrize(
    "function",
    [
        lambda x, r, c, i: (x[r, i[:1]].exp(), x[:, c, :, i[1:2]], x[r, i[:, None]] + 1),
        lambda x, r, c, i: (x[:, :4][r, r], (x * 2)[r[:, None] & c, i[:1]], x[r, 2, :, 1:]),
        _put,
    ],
)
@pytest.mark.parametrize("dynamic", [None, True])
def test_masks_with_other_index_tensors(function: Callable[..., object], dynamic: bool | None) -> None:
    with litz.config.patch(fallback="error"):
        compiled = torch.compile(function, backend="litz", fullgraph=True, dynamic=dynamic)
        for x, rows in ((CUBE, ROWS), (CUBE * 2, ROWS.roll(1)), (CUBE.flip(0), ROWS)):
            given = x, rows, COLUMNS, THIRDS
            torch.testing.assert_close(compiled(*given), function(*given))


def test_masks_that_choose_one_element_or_none_with_other_index_tensors() -> None:
    def put(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return x.index_put((a, b), v) * x.index_put((a, b), v[:1], accumulate=True)

    compiled = torch.compile(put, backend="litz", fullgraph=True)
    one, none = torch.arange(4) == 2, torch.arange(4) > 4
    for a, b, count in (
        (ROWS, COLUMNS, 3),
        (one, COLUMNS, 3),
        (ROWS, torch.arange(5) == 1, 3),
        (one, COLUMNS & False, 1),
    ):
        values = CUBE[0, :count]
        torch.testing.assert_close(compiled(CUBE, a, b, values), put(CUBE, a, b, values))
    for a, b, count in (
        (none, COLUMNS, 3),
        (one, COLUMNS & False, 3),
        (ROWS, COLUMNS & False, 1),
        (ROWS, COLUMNS, 2),
    ):
        with pytest.raises((IndexError, RuntimeError)) as expected:
            put(CUBE, a, b, CUBE[0, :count])
        with pytest.raises((IndexError, RuntimeError)) as found:
            compiled(CUBE, a, b, CUBE[0, :count])
        assert isinstance(found.value, type(expected.value))


def test_gradients_through_masks_with_other_index_tensors() -> None:
    def loss(x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        put = x.index_put((mask, i), y) + x.index_put((mask, i), y, accumulate=True)
        return (x[mask, i] ** 2).sum() + (x[:, COLUMNS, :, i] ** 3).sum() + put.sin().sum()

    found = []
    for run in (loss, torch.compile(loss, backend="litz", fullgraph=True)):
        x, y = CUBE.clone().requires_grad_(), CUBE[0, :3].clone().requires_grad_()
        run(x, y, ROWS, ONE_THIRD).backward()
        found.append((x.grad, y.grad))
    torch.testing.assert_close(found[1], found[0])


def test_gradients_of_what_masks_choose() -> None:
    def loss(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (x[mask] ** 2).sum() + torch.masked_select(x, ~mask).exp().sum()

    found = []
    for run in (loss, torch.compile(loss, backend="litz", fullgraph=True)):
        x = X.clone().requires_grad_()
        run(x, MASK).backward()
        found.append(x.grad)
    torch.testing.assert_close(found[1], found[0])


def test_words_in_a_check_s_message_are_no_variables() -> None:
    def function(numbers: torch.Tensor) -> torch.Tensor:
        return torch.bincount(numbers)

    compiled = torch.compile(function, backend="litz", fullgraph=True)
    numbers = torch.tensor([3, 0, 3])
    assert torch.equal(compiled(numbers), function(numbers))
    with pytest.raises(RuntimeError, match="bincount only supports 1-d non-negative integral inputs"):
        compiled(numbers - 1)
