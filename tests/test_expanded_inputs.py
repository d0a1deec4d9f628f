"""Gradients of views of an expanded argument, in graphs with symbols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor


def middle(x: Tensor) -> Tensor:
    return x[x.shape[0] // 2]


def middle_and_sum(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[x.shape[0] // 2 :], x.sum(0)


@pytest.mark.parametrize("dynamic", [None, False, True])
@pytest.mark.parametrize("f", [middle, middle_and_sum])
def test_a_view_gives_its_gradient_to_the_viewed_elements(
    f: Callable[[Tensor], Any], dynamic: bool | None
) -> None:
    compiled = torch.compile(f, backend="litz", dynamic=dynamic)
    for rows in (5, 8, 40):
        leaves = [torch.arange(4.0).expand(rows, 4).requires_grad_() for _ in range(2)]
        for call, leaf in zip((compiled, f), leaves, strict=True):
            found = call(leaf)
            first = found[0] if isinstance(found, tuple) else found
            (first * torch.arange(1.0, 5.0)).sum().backward()
        torch.testing.assert_close(leaves[0].grad, leaves[1].grad, rtol=0, atol=0)
