"""Detectors."""

from __future__ import annotations

import copy

import torch
from ultralytics.nn.tasks import DetectionModel
from ultralytics.utils import IterableSimpleNamespace

from ecosystem.programs import Backend, Step, inference, program, training

LAYERS = {
    "nc": 3,
    "depth_multiple": 1.0,
    "width_multiple": 1.0,
    "backbone": [
        [-1, 1, "Conv", [8, 3, 2]],
        [-1, 1, "C2f", [16, True]],
        [-1, 1, "Conv", [16, 3, 2]],
        [-1, 1, "SPPF", [16, 5]],
    ],
    "head": [
        [-1, 1, "nn.Upsample", ["None", 2, "nearest"]],
        [[-1, 1], 1, "Concat", [1]],
        [-1, 1, "C2f", [16]],
        [[6, 3], 1, "Detect", ["nc"]],
    ],
}
"""A small detector in the library's form: from, repeats, module, arguments."""


def _detector() -> DetectionModel:
    model = DetectionModel(copy.deepcopy(LAYERS), verbose=False)
    model.args = IterableSimpleNamespace(box=7.5, cls=0.5, dfl=1.5)
    return model


@program(steps=2)
def detector_inference(backend: Backend) -> Step:
    model = _detector().eval()
    return inference(backend.compile(model), [(torch.rand(1, 3, 64, 64),), (torch.rand(1, 3, 64, 64),)])


@program(steps=2)
def detector_training(backend: Backend) -> Step:
    model = _detector().train()
    call = backend.compile(model)
    batches = [(torch.rand(1, 3, 64, 64),), (torch.rand(1, 3, 64, 64),)]

    def loss(x: torch.Tensor) -> torch.Tensor:
        result = call(x)
        maps = result["feats"] if isinstance(result, dict) else result
        return torch.stack([value.square().mean() for value in maps]).sum()

    return training(loss, model, batches)
