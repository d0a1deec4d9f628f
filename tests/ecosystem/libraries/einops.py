"""Rearrangements of tensors."""

from __future__ import annotations

import torch
from einops import einsum, pack, rearrange, reduce, repeat, unpack
from einops.layers.torch import Rearrange, Reduce
from torch import nn

from ecosystem.programs import Backend, Step, inference, program, training


@program
def layers_training(backend: Backend) -> Step:
    model = nn.Sequential(
        Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4),
        nn.Linear(48, 16),
        nn.GELU(),
        Reduce("b n c -> b c", "mean"),
        nn.Linear(16, 3),
    )
    call = backend.compile(model)
    return training(lambda x: call(x).square().mean(), model, [(torch.randn(2, 3, 8, 12),) for _ in range(2)])


@program
def functions(backend: Backend) -> Step:
    def attend(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        both, shapes = pack([x, y], "b * c")
        q = rearrange(both, "b n (h d) -> b h n d", h=2)
        scores = einsum(q, q, "b h i d, b h j d -> b h i j").softmax(-1)
        out = rearrange(einsum(scores, q, "b h i j, b h j d -> b h i d"), "b h n d -> b n (h d)")
        first, second = unpack(out, shapes, "b * c")
        return (
            first,
            repeat(second, "b n m c -> b (n r) m c", r=2),
            reduce(out, "b (n two) c -> b n c", "max", two=2),
        )

    call = backend.compile(attend)
    return inference(call, [(torch.randn(2, n, 8), torch.randn(2, 3, 3, 8)) for n in (5, 7, 5)])
