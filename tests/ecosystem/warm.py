"""The process from which the cases' processes are forked: all but the libraries is imported, a model compiled."""

from __future__ import annotations

import tempfile

import torch

import litz
from ecosystem.execution import prepared, results
from ecosystem.programs import Backend, Step, inference
from ecosystem.worker import judged


def _small(backend: Backend) -> Step:
    model = backend.compile(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()))
    return inference(model, [(torch.ones(2, 4),)])


torch.set_num_threads(1)
with tempfile.TemporaryDirectory(prefix="litz-ecosystem-") as folder, litz.config.patch(cache_dir=folder):
    eager = results(prepared(_small, Backend()), range(1))
    judged(_small, range(1), "litz", eager, eager)
