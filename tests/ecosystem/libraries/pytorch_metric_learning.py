"""Losses on embeddings."""

from __future__ import annotations

import torch
from pytorch_metric_learning import losses, miners
from torch import nn

from ecosystem.programs import Backend, Step, program, training


def _training(backend: Backend, loss: nn.Module) -> Step:
    model = nn.Linear(6, 4)
    call = backend.compile(lambda x, y: loss(model(x), y))
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    return training(call, model, [(torch.randn(6, 6), labels), (torch.randn(6, 6), labels.roll(1))])


@program
def arcface(backend: Backend) -> Step:
    return _training(backend, losses.ArcFaceLoss(3, 4))


@program
def ntxent(backend: Backend) -> Step:
    return _training(backend, losses.NTXentLoss())


@program
def mined_triplets(backend: Backend) -> Step:
    model = nn.Linear(6, 4)
    call = backend.compile(model)
    loss, miner = losses.TripletMarginLoss(), miners.MultiSimilarityMiner()
    labels = torch.tensor([0, 0, 1, 1, 2, 2])

    def mined(x: torch.Tensor) -> torch.Tensor:
        vectors = call(x)
        result: torch.Tensor = loss(vectors, labels, miner(vectors, labels))
        return result

    return training(mined, model, [(torch.randn(6, 6),), (torch.randn(6, 6),)])
