"""Engines of training."""

from __future__ import annotations

import torch
from ignite.engine import Engine, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy, Loss
from torch import nn

from ecosystem.programs import Backend, Step, program


@program(steps=1)
def engines(backend: Backend) -> Step:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    call = backend.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    trainer: Engine = create_supervised_trainer(call, optimizer, nn.CrossEntropyLoss())
    metrics = {"accuracy": Accuracy(), "loss": Loss(nn.CrossEntropyLoss())}
    evaluator = create_supervised_evaluator(call, metrics=metrics)
    data = [(torch.randn(5, 6), torch.randint(3, (5,))) for _ in range(3)]

    def step(number: int) -> dict[str, object]:
        trainer.run(data, max_epochs=2)
        values = evaluator.run(data).metrics
        return {"metric": values, **{f"parameter {name}": value for name, value in model.named_parameters()}}

    return step
