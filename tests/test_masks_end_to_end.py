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
