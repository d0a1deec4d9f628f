"""Metrics inside a step."""

from __future__ import annotations

import torch
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score
from torchmetrics.functional import (
    mean_squared_error,
    pairwise_cosine_similarity,
    structural_similarity_index_measure,
)
from torchmetrics.functional.classification import multiclass_accuracy, multiclass_confusion_matrix

from ecosystem.programs import Backend, Step, inference, program


@program
def functions(backend: Backend) -> Step:
    def measure(scores: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            multiclass_accuracy(scores, target, 4, validate_args=False),
            multiclass_confusion_matrix(scores, target, 4, validate_args=False),
            mean_squared_error(scores, scores.flip(0)),
            pairwise_cosine_similarity(scores),
        )

    batches = [(torch.randn(10, 4), torch.randint(4, (10,))) for _ in range(2)]
    return inference(backend.compile(measure), batches)


@program
def image_similarity(backend: Backend) -> Step:
    call = backend.compile(lambda x, y: structural_similarity_index_measure(x, y, data_range=1.0))
    return inference(call, [(torch.rand(1, 3, 16, 16), torch.rand(1, 3, 16, 16)) for _ in range(2)])


@program
def modules_in_a_step(backend: Backend) -> Step:
    model = torch.nn.Linear(6, 4)
    metrics = MetricCollection({"accuracy": MulticlassAccuracy(4), "f1": MulticlassF1Score(4)})
    mean = MeanMetric()

    def evaluate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        scores = model(x)
        loss = torch.nn.functional.cross_entropy(scores, y)
        metrics.update(scores, y)
        mean.update(loss)
        return loss

    call = backend.compile(evaluate)

    def both(x: torch.Tensor, y: torch.Tensor) -> object:
        loss = call(x, y)
        return loss, metrics.compute(), mean.compute()

    return inference(both, [(torch.randn(9, 6), torch.randint(4, (9,))) for _ in range(2)])
