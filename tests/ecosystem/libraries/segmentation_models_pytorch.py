"""Segmentation of images."""

from __future__ import annotations

import segmentation_models_pytorch as smp
import torch
from torch import nn

from ecosystem.programs import Backend, Step, inference, program, training


def _training(backend: Backend, model: nn.Module, loss: nn.Module) -> Step:
    call = backend.compile(model)
    batches = [(torch.randn(2, 3, 32, 32), torch.randint(3, (2, 32, 32))) for _ in range(2)]
    return training(lambda x, y: loss(call(x), y), model, batches)


@program
def unet_training(backend: Backend) -> Step:
    model = smp.Unet(
        "resnet18", encoder_depth=3, encoder_weights=None, classes=3, decoder_channels=(16, 8, 8)
    )
    return _training(backend, model, smp.losses.DiceLoss("multiclass"))


@program
def pyramid_training(backend: Backend) -> Step:
    model = smp.FPN(
        "resnet18",
        encoder_depth=3,
        encoder_weights=None,
        classes=3,
        decoder_pyramid_channels=16,
        upsampling=1,
    )
    model.decoder.dropout = nn.Identity()
    return _training(backend, model, smp.losses.FocalLoss("multiclass"))


@program
def pooled_pyramid_inference(backend: Backend) -> Step:
    model = smp.PSPNet(
        "resnet18", encoder_depth=3, encoder_weights=None, classes=3, psp_out_channels=32
    ).eval()
    return inference(backend.compile(model), [(torch.randn(1, 3, 48, 48),), (torch.randn(1, 3, 48, 48),)])
