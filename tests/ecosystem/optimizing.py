"""Training by an optimizer of a library, whose step is compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn

from ecosystem.programs import Backend, Step


def optimizer_steps(
    backend: Backend, optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
) -> Step:
    """Return steps of training of a small model: loss and backward in eager, the optimizer's step compiled."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    chosen = optimizer(model.parameters())
    update = backend.compile(chosen.step)
    batches = [(torch.randn(5, 6), torch.randint(3, (5,))) for _ in range(3)]

    def step(number: int) -> dict[str, torch.Tensor]:
        chosen.zero_grad()
        x, y = batches[number % 3]
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        update()
        return {"loss": loss, **{f"parameter {name}": value for name, value in model.named_parameters()}}

    return step
