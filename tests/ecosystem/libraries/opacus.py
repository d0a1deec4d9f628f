"""Gradients with privacy."""

from __future__ import annotations

import torch
from opacus.grad_sample import GradSampleModule
from torch import nn

from ecosystem.programs import Backend, Step, program


@program
def per_sample_gradients(backend: Backend) -> Step:
    model = GradSampleModule(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)))
    loss = backend.compile(lambda scores, y: nn.functional.cross_entropy(scores, y))
    batches = [(torch.randn(5, 6), torch.randint(3, (5,))) for _ in range(2)]

    def step(number: int) -> dict[str, torch.Tensor]:
        x, y = batches[number % 2]
        model.zero_grad()
        value = loss(model(x), y)
        value.backward()
        return {
            "loss": value.detach(),
            **{f"gradient {name}": p.grad_sample for name, p in model.named_parameters()},
        }

    return step
