"""Optimizers without a schedule."""

from __future__ import annotations

from collections.abc import Iterable

import schedulefree
import torch

from ecosystem.optimizing import optimizer_steps
from ecosystem.programs import Backend, Step, program


@program
def adamw(backend: Backend) -> Step:
    def optimizer(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        chosen: torch.optim.Optimizer = schedulefree.AdamWScheduleFree(parameters, lr=1e-2)
        chosen.train()
        return chosen

    return optimizer_steps(backend, optimizer)
