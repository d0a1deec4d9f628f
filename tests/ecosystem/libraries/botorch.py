"""Bayesian optimisation."""

from __future__ import annotations

import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.models import SingleTaskGP
from botorch.test_functions import Branin, Hartmann

from ecosystem.programs import Backend, Step, inference, program


@program
def acquisition(backend: Backend) -> Step:
    x = torch.rand(8, 2, dtype=torch.float64)
    model = SingleTaskGP(x, (x.sin().sum(-1, keepdim=True)))
    model.eval()
    value = backend.compile(LogExpectedImprovement(model, best_f=0.5))
    return inference(value, [(torch.rand(5, 1, 2, dtype=torch.float64),) for _ in range(2)])


@program
def test_functions(backend: Backend) -> Step:
    branin, hartmann = backend.compile(Branin()), backend.compile(Hartmann())
    return inference(
        lambda x, y: (branin(x), hartmann(y)),
        [(torch.rand(5, 2) * 10, torch.rand(5, 6)) for _ in range(2)],
    )
