"""State-space models in PyTorch."""

from __future__ import annotations

import torch
from mambapy.mamba import Mamba, MambaConfig

from ecosystem.programs import Backend, Step, inference, program, training


def _model(**options: object) -> Mamba:
    return Mamba(MambaConfig(d_model=16, n_layers=2, d_state=4, **options))


@program
def parallel_scan_training(backend: Backend) -> Step:
    model = _model()
    call = backend.compile(model)
    return training(lambda x: call(x).square().mean(), model, [(torch.randn(2, 8, 16),) for _ in range(2)])


@program
def sequential_inference(backend: Backend) -> Step:
    call = backend.compile(_model(pscan=False).eval())
    return inference(call, [(torch.randn(2, 8, 16),), (torch.randn(2, 8, 16),)])
