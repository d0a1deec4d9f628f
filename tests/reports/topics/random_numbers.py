"""Random numbers: the same seed gives eager's numbers, in eager's order."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from reports.table import Compile, counted, report


@report("pytorch#181136", "draws are reordered around a convolution")
def order_of_draws(compiled: Compile) -> object:
    def program() -> torch.Tensor:
        a, b = torch.randn(2, 4, 4, 4), torch.randn(2, 3, 4, 4)
        c = torch.randn(4, 3, 3, 3)
        return a + F.conv2d(b, c, padding=1)

    return compiled(program)()


@report("pytorch#192635", "dropout masks of independent branches are drawn in another order")
def order_of_dropouts(compiled: Compile) -> object:
    def program(encoder: torch.Tensor, decoder: torch.Tensor) -> torch.Tensor:
        left = F.dropout(encoder.sin(), 0.3).sum(0)
        return F.dropout(decoder, 0.5) + left

    return compiled(program)(counted(50, 8), counted(8))


@report("pytorch#176842", "two calls of randint are exchanged")
def order_of_integers(compiled: Compile) -> object:
    def program() -> tuple[torch.Tensor, ...]:
        a, b = torch.randint(0, 100, (5,)), torch.randint(0, 100, (3,))
        return b * 2, a + 1, torch.randperm(6), torch.rand(2).half()

    return compiled(program)()


@report("pytorch#141557", "dropout after a seed has another mask")
def mask_after_a_seed(compiled: Compile) -> object:
    call = compiled(lambda x: F.dropout(x, 0.5))
    results = []
    for _ in range(2):
        torch.manual_seed(5)
        results.append(call(torch.ones(40)))
    return results


@report("pytorch#174078", "dropout of a transposed and copied tensor has the mask of its memory")
def dropout_of_a_copied_transpose(compiled: Compile) -> object:
    return compiled(lambda x: F.dropout(x.t().contiguous()))(counted(3, 3, start=1).double())


@report("pytorch#118735", "a generator of one's own and the default one with the same seed differ")
def own_generator(compiled: Compile) -> object:
    def program() -> tuple[torch.Tensor, ...]:
        own = torch.Generator().manual_seed(42)
        first = torch.rand(3, generator=own)
        torch.manual_seed(42)
        return first, torch.rand(3)

    return compiled(program)()


@report("pytorch#142853", "dropout of whole channels has other channels")
def dropout_of_channels(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            F.dropout1d(x),
            F.dropout2d(x.unsqueeze(-1)),
            F.alpha_dropout(x, training=True),
            F.feature_alpha_dropout(x, training=True),
        )

    return compiled(program)(torch.ones(2, 6, 5))


@report("pytorch#158643", "dropout and an in-place relu")
def dropout_and_relu(compiled: Compile) -> object:
    x: Any = (counted(30) - 15).requires_grad_()
    y = compiled(lambda t: F.relu(F.dropout(t * 2, 0.4), inplace=True))(x)
    y.sum().backward()
    return y.detach(), x.grad


@report("pytorch#198333", "groups of neighbouring elements share a mask, and the gradient has another one")
def mask_of_forward_and_backward(compiled: Compile) -> object:
    x: Any = torch.ones(4, 16, 8, requires_grad=True)
    y = compiled(lambda t: F.dropout(t.transpose(1, 2).contiguous(), 0.5))(x)
    y.backward(torch.ones_like(y))
    return y.detach(), x.grad


@report("pytorch#113554", "normal with out= of tensors without dimensions fails")
def draws_into_a_tensor(compiled: Compile) -> object:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.uniform_(-1, 1)
        y = torch.normal(torch.zeros(4), torch.ones(4))
        return (
            y,
            torch.empty(5).normal_(2, 3),
            torch.bernoulli(torch.full((8,), 0.5)),
            torch.multinomial(torch.ones(5), 3),
        )

    x = torch.empty(6)
    return compiled(program)(x), x
