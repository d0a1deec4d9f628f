"""Averages of weights."""

from __future__ import annotations

import torch
from ema_pytorch import EMA
from torch import nn

from ecosystem.programs import Backend, Step, program


@program
def average(backend: Backend) -> Step:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    average = EMA(model, beta=0.9, update_after_step=0, update_every=1)
    call = backend.compile(average.ema_model)
    x = torch.randn(5, 6)

    def step(number: int) -> torch.Tensor:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.1).add_(0.01)
        average.update()
        result: torch.Tensor = call(x)
        return result

    return step
