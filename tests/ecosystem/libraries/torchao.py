"""Quantised weights and activations."""

from __future__ import annotations

import torch
from torch import nn
from torchao.quantization import (
    Int8DynamicActivationInt8WeightConfig,
    Int8DynamicActivationIntxWeightConfig,
    Int8WeightOnlyConfig,
    quantize_,
)
from torchao.quantization.qat import QATConfig

from ecosystem.programs import Backend, Step, inference, program, training


def _model(dtype: torch.dtype = torch.float32) -> nn.Module:
    return nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 32)).to(dtype).eval()


@program
def int8_weights(backend: Backend) -> Step:
    model = _model()
    quantize_(model, Int8WeightOnlyConfig())
    return inference(backend.compile(model), [(torch.randn(3, 64),), (torch.randn(3, 64),)])


@program
def int8_weights_of_bfloat16(backend: Backend) -> Step:
    model = _model(torch.bfloat16)
    quantize_(model, Int8WeightOnlyConfig())
    return inference(backend.compile(model), [(torch.randn(1, 64).bfloat16(),) for _ in range(2)])


@program
def int8_activations(backend: Backend) -> Step:
    model = _model()
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    return inference(backend.compile(model), [(torch.randn(3, 64),), (torch.randn(3, 64),)])


@program
def quantisation_aware_training(backend: Backend) -> Step:
    model = _model().train()
    quantize_(
        model, QATConfig(Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int8), step="prepare")
    )
    call = backend.compile(model)
    return training(lambda x: call(x).square().mean(), model, [(torch.randn(3, 64),), (torch.randn(3, 64),)])
