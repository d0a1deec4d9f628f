"""Compiled steps of torch's optimisers: parameters are eager's after some steps, and every operation is generated."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn, optim

import litz

OPTIMIZERS: dict[str, tuple[type[optim.Optimizer], dict[str, Any]]] = {
    "sgd": (optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}),
    "adam": (optim.Adam, {"lr": 0.01, "amsgrad": True, "weight_decay": 0.1}),
    "adamw": (optim.AdamW, {"lr": 0.01}),
    "rmsprop": (optim.RMSprop, {"lr": 0.01, "momentum": 0.9, "centered": True}),
    "adagrad": (optim.Adagrad, {"lr": 0.01, "lr_decay": 0.1}),
    "nadam": (optim.NAdam, {"lr": 0.01}),
    "radam": (optim.RAdam, {"lr": 0.01}),
    "adadelta": (optim.Adadelta, {"lr": 1.0}),
    "adamax": (optim.Adamax, {"lr": 0.01}),
    "asgd": (optim.ASGD, {"lr": 0.01}),
    "rprop": (optim.Rprop, {"lr": 0.01}),
}


def after_steps(name: str, foreach: bool, *, compiled: bool) -> list[nn.Parameter]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.randn(5, 7)), nn.Parameter(torch.randn(11))]
    kind, options = OPTIMIZERS[name]
    step = kind(parameters, foreach=foreach, **options).step
    run = torch.compile(step, backend="litz") if compiled else step
    for k in range(3):
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter) * (k + 1)
        run()
    return parameters


@pytest.mark.sampled
@pytest.mark.parametrize("foreach", [False, True], ids=["single", "foreach"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimiser_steps_as_in_eager(name: str, foreach: bool) -> None:
    with litz.config.patch(fallback="error"):
        found = after_steps(name, foreach, compiled=True)
    for mine, theirs in zip(found, after_steps(name, foreach, compiled=False), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-6)
