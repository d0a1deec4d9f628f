"""Self-supervised learning."""

from __future__ import annotations

import torch
from lightly.loss import BarlowTwinsLoss, NTXentLoss, VICRegLoss
from lightly.models.modules import SimCLRProjectionHead
from torch import nn

from ecosystem.programs import Backend, Step, program, training


def _training(backend: Backend, loss: nn.Module) -> Step:
    backbone = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = nn.Sequential(backbone, SimCLRProjectionHead(8, 8, 4))
    call = backend.compile(model)
    batches = [(torch.randn(6, 3, 8, 8), torch.randn(6, 3, 8, 8)) for _ in range(2)]
    return training(lambda x, y: loss(call(x), call(y)), model, batches)


@program
def simclr(backend: Backend) -> Step:
    return _training(backend, NTXentLoss())


@program
def barlow_twins(backend: Backend) -> Step:
    loss = BarlowTwinsLoss()
    return _training(backend, backend.compile(loss))


@program
def vicreg(backend: Backend) -> Step:
    loss = VICRegLoss()
    return _training(backend, backend.compile(loss))
