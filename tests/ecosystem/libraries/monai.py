"""Medical images."""

from __future__ import annotations

import torch
from monai.inferers import sliding_window_inference
from monai.losses import DiceCELoss, LocalNormalizedCrossCorrelationLoss
from monai.networks.nets import BasicUNet, SegResNet, UNet

from ecosystem.programs import Backend, Step, inference, program, training


@program
def unet_training(backend: Backend) -> Step:
    model = UNet(3, 1, 2, channels=(4, 8, 16), strides=(2, 2), num_res_units=1)
    call = backend.compile(model)
    loss = DiceCELoss(to_onehot_y=True, softmax=True)
    batches = [(torch.randn(1, 1, 8, 8, 8), torch.randint(2, (1, 1, 8, 8, 8))) for _ in range(2)]
    return training(lambda x, y: loss(call(x), y), model, batches)


@program
def sliding_windows(backend: Backend) -> Step:
    call = backend.compile(SegResNet(2, init_filters=8, in_channels=1, out_channels=2).eval())
    return inference(lambda x: sliding_window_inference(x, (16, 16), 2, call), [(torch.randn(1, 1, 24, 20),)])


@program
def upsampling_training(backend: Backend) -> Step:
    model = BasicUNet(2, 1, 2, features=(4, 4, 8, 8, 8, 4), upsample="nontrainable")
    call = backend.compile(model)
    return training(
        lambda x: call(x).square().mean(), model, [(torch.randn(1, 1, 32, 32),) for _ in range(2)]
    )


@program
def registration_loss(backend: Backend) -> Step:
    warp = torch.nn.Conv2d(1, 1, 3, padding=1)
    loss = LocalNormalizedCrossCorrelationLoss(spatial_dims=2)
    call = backend.compile(lambda x, y: loss(warp(x), y))
    return training(call, warp, [(torch.rand(1, 1, 12, 12), torch.rand(1, 1, 12, 12)) for _ in range(2)])
