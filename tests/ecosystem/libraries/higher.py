"""Steps of an optimizer that are differentiated."""

from __future__ import annotations

import higher
import torch
from torch import nn

from ecosystem.programs import Backend, Step, program


@program
def outer_gradients(backend: Backend) -> Step:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    loss = backend.compile(lambda prediction, y: nn.functional.mse_loss(prediction, y))
    batches = [(torch.randn(6, 4), torch.randn(6, 1)) for _ in range(2)]

    def step(number: int) -> dict[str, torch.Tensor]:
        model.zero_grad()
        x, y = batches[number % 2]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with higher.innerloop_ctx(model, optimizer, copy_initial_weights=False) as (inner, update):
            update.step(nn.functional.mse_loss(inner(x[:3]), y[:3]))
            outer = loss(inner(x[3:]), y[3:])
            outer.backward()
        gradients = {f"gradient {name}": value.grad for name, value in model.named_parameters()}
        return {"loss": outer.detach(), **gradients}

    return step
