"""An optimizer."""

from __future__ import annotations

from lion_pytorch import Lion

from ecosystem.optimizing import optimizer_steps
from ecosystem.programs import Backend, Step, program


@program
def lion(backend: Backend) -> Step:
    return optimizer_steps(backend, lambda parameters: Lion(parameters, lr=1e-3, weight_decay=1e-2))


@program
def decoupled_lion(backend: Backend) -> Step:
    return optimizer_steps(
        backend, lambda parameters: Lion(parameters, lr=1e-3, weight_decay=0.1, decoupled_weight_decay=True)
    )
