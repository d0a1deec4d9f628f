"""Attention masks that are equal for all keys become a selection of rows."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.fx import GraphModule

from litz.capture.attention_masks import select_rows


def rewritten(function: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> tuple[Any, list[bool]]:
    """Return results of a function whose masks were rewritten on a CPU, and whether each attention has a mask."""
    masked: list[bool] = []

    def backend(gm: GraphModule, _: Sequence[Any]) -> GraphModule:
        select_rows(gm, lambda kind: kind == "cpu")
        calls = [n for n in gm.graph.nodes if n.target is F.scaled_dot_product_attention]
        masked.extend(len(n.args) > 3 or n.kwargs.get("attn_mask") is not None for n in calls)
        gm.graph.lint()
        return gm

    torch._dynamo.reset()
    return torch.compile(function, backend=backend)(*inputs), masked


def qkv(gradients: bool = False) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(2, 3, 5, 8, requires_grad=gradients) for _ in range(3)]


def test_attention_without_keys_stays_as_it_is() -> None:
    rows = torch.tensor([True, False, True, True, False]).view(5, 1)

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=rows.expand(5, 0))

    query, empty = torch.ones(2, 3, 5, 8), torch.ones(2, 3, 0, 8)
    inputs = (query, empty, empty)
    found, masked = rewritten(attention, inputs)
    assert masked == [True]
    torch.testing.assert_close(found, attention(*inputs), equal_nan=True)


def test_a_mask_of_rows_selects_them_and_their_gradients() -> None:
    rows = torch.tensor([True, False, True, True, False])

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=rows.view(1, 1, 5, 1).expand(2, 1, 5, 5))

    inputs = qkv(gradients=True)
    found, masked = rewritten(attention, inputs)
    expected = attention(*inputs)
    assert masked == [False]
    torch.testing.assert_close(found, expected)
    assert (found[:, :, 1] == 0).all()
    upstream = torch.randn_like(expected)
    for one, other in zip(
        torch.autograd.grad(found, inputs, upstream),
        torch.autograd.grad(expected, inputs, upstream),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    "mask",
    [
        pytest.param(torch.ones(5, 5, dtype=torch.bool).tril(), id="differs between keys"),
        pytest.param(torch.zeros(5, 1).expand(5, 5), id="added"),
        pytest.param(torch.ones(5, dtype=torch.bool).expand(5, 5), id="differs between keys alone"),
    ],
)
def test_other_masks_stay(mask: torch.Tensor) -> None:
    inputs = qkv()
    found, masked = rewritten(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask), inputs)
    assert masked == [True]
    torch.testing.assert_close(found, F.scaled_dot_product_attention(*inputs, mask))


def test_a_mask_stays_where_numbers_are_drawn() -> None:
    mask = torch.ones(5, 1, dtype=torch.bool).expand(5, 5)
    _, masked = rewritten(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask, dropout_p=0.5), qkv())
    assert masked == [True]
