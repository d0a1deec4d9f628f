"""A collection of optimizers, whose steps are compiled."""

from __future__ import annotations

import pytorch_optimizer

from ecosystem.optimizing import optimizer_steps
from ecosystem.programs import Backend, Step, program


@program
def adopt(backend: Backend) -> Step:
    return optimizer_steps(backend, lambda parameters: pytorch_optimizer.ADOPT(parameters, lr=1e-2))


@program
def lamb(backend: Backend) -> Step:
    return optimizer_steps(backend, lambda parameters: pytorch_optimizer.Lamb(parameters, lr=1e-2))


@program
def adabelief(backend: Backend) -> Step:
    return optimizer_steps(backend, lambda parameters: pytorch_optimizer.AdaBelief(parameters, lr=1e-2))


@program
def adafactor(backend: Backend) -> Step:
    return optimizer_steps(backend, lambda parameters: pytorch_optimizer.AdaFactor(parameters, lr=1e-2))


@program
def prodigy(backend: Backend) -> Step:
    return optimizer_steps(backend, lambda parameters: pytorch_optimizer.Prodigy(parameters, lr=1.0))


@program
def shampoo(backend: Backend) -> Step:
    return optimizer_steps(backend, lambda parameters: pytorch_optimizer.Shampoo(parameters, lr=1e-2))
