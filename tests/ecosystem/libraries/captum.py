"""Attribution."""

from __future__ import annotations

import torch
from captum.attr import IntegratedGradients, Occlusion, Saliency
from torch import nn

from ecosystem.programs import Backend, Step, program


def _steps(backend: Backend, method: type, **options: object) -> Step:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).eval()
    attribution = method(backend.compile(model))
    images = [torch.randn(2, 1, 8, 8) for _ in range(2)]
    return lambda number: attribution.attribute(images[number % 2], target=1, **options)


@program
def integrated_gradients(backend: Backend) -> Step:
    return _steps(backend, IntegratedGradients, n_steps=5)


@program
def saliency(backend: Backend) -> Step:
    return _steps(backend, Saliency)


@program
def occlusion(backend: Backend) -> Step:
    return _steps(backend, Occlusion, sliding_window_shapes=(1, 4, 4), strides=(1, 4, 4))
