"""Normalising flows as distributions."""

from __future__ import annotations

import torch
import zuko

from ecosystem.programs import Backend, Step, program, training


def _training(backend: Backend, flow: torch.nn.Module) -> Step:
    loss = backend.compile(lambda x, context: -flow(context).log_prob(x).mean())
    return training(loss, flow, [(torch.randn(6, 3), torch.randn(6, 2)) for _ in range(2)])


@program
def neural_spline_flow(backend: Backend) -> Step:
    return _training(backend, zuko.flows.NSF(3, 2, transforms=2, hidden_features=(8, 8)))


@program
def masked_autoregressive_flow(backend: Backend) -> Step:
    return _training(backend, zuko.flows.MAF(3, 2, transforms=2, hidden_features=(8, 8)))
