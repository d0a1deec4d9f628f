"""``col2im`` and the gradients of ``unfold`` and ``embedding`` against eager's."""

from __future__ import annotations

import pytest
import torch
from compared_with_eager import agrees, values
from torch import Tensor
from torch.nn.functional import embedding, fold, unfold

WINDOWS = {
    "overlapping": ((9, 11), (3, 3), (1, 1), (1, 1), (1, 1)),
    "dilated": ((9, 11), (3, 2), (2, 1), (2, 0), (1, 2)),
    "with gaps in windows": ((12, 13), (2, 3), (3, 2), (1, 2), (2, 3)),
    "with gaps between windows": ((11, 11), (2, 2), (1, 1), (0, 0), (3, 3)),
    "apart": ((8, 12), (4, 4), (1, 1), (0, 0), (4, 4)),
    "mostly padding": ((3, 3), (4, 4), (1, 1), (3, 3), (2, 2)),
}
"""Sizes of the image, and of windows: kernel, dilation, padding, stride."""


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_are_added_up(name: str, dtype: torch.dtype) -> None:
    size, kernel, dilation, padding, stride = WINDOWS[name]
    image = values(2, 3, *size)
    columns = unfold(image, kernel, dilation, padding, stride)

    def added_up(columns: Tensor) -> Tensor:
        return fold(columns, size, kernel, dilation, padding, stride)

    if dtype == torch.bfloat16:  # eager rounds at each addition
        found = torch.compile(added_up, backend="litz")(columns.to(dtype))
        torch.testing.assert_close(found.double(), added_up(columns.to(dtype).double()), rtol=0.01, atol=0.01)
        return
    agrees(added_up, columns.to(dtype))
    agrees(added_up, columns[0].to(dtype))


def test_infinities_stay_at_their_elements() -> None:
    columns = torch.zeros(1, 4, 9)
    columns[0, 1, 4] = float("inf")

    def added_up(columns: Tensor) -> Tensor:
        return fold(columns, (4, 4), 2)

    agrees(added_up, columns)


@pytest.mark.parametrize("padding", [None, 2])
def test_gradients_of_embeddings_in_bf16_round_as_eagers(padding: int | None) -> None:
    weight = values(7, 33, dtype=torch.bfloat16).requires_grad_()
    rows = torch.randint(0, 7, (5, 13))

    def look_up(weight: Tensor) -> Tensor:
        return embedding(rows, weight, padding_idx=padding)

    found, expected = torch.compile(look_up, backend="litz")(weight), look_up(weight)
    tangent = torch.randn_like(expected)
    (own,), (eager,) = (torch.autograd.grad(each, weight, tangent) for each in (found, expected))
    torch.testing.assert_close(own, eager, rtol=0, atol=0)
