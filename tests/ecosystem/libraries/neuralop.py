"""Neural operators."""

from __future__ import annotations

import torch
from neuralop.losses import H1Loss, LpLoss
from neuralop.models import FNO

from ecosystem.programs import Backend, Step, program, training


@program
def fourier_operator_training(backend: Backend) -> Step:
    model = FNO(n_modes=(4, 4), hidden_channels=8, in_channels=1, out_channels=1, n_layers=2)
    call = backend.compile(model)
    loss = LpLoss(d=2, p=2)
    batches = [(torch.randn(2, 1, 8, 8), torch.randn(2, 1, 8, 8)) for _ in range(2)]
    return training(lambda x, y: loss(call(x), y), model, batches)


@program
def sobolev_loss(backend: Backend) -> Step:
    model = torch.nn.Conv2d(1, 1, 3, padding=1)
    loss = H1Loss(d=2)
    call = backend.compile(lambda x, y: loss(model(x), y))
    return training(call, model, [(torch.randn(2, 1, 8, 8), torch.randn(2, 1, 8, 8)) for _ in range(2)])
