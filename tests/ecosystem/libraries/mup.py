"""Parametrisation by width."""

from __future__ import annotations

import torch
from mup import MuAdam, MuReadout, set_base_shapes
from torch import nn

from ecosystem.programs import Backend, Step, program, training


def _model(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), MuReadout(width, 3)
    )


@program
def training_with_its_optimizer(backend: Backend) -> Step:
    model = set_base_shapes(_model(16), _model(4), delta=_model(8))
    call = backend.compile(model)
    optimizer = MuAdam(model.parameters(), lr=1e-3)
    batches = [(torch.randn(5, 6), torch.randint(3, (5,))) for _ in range(2)]
    return training(lambda x, y: nn.functional.cross_entropy(call(x), y), model, batches, optimizer)
