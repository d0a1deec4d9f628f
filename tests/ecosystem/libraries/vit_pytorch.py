"""Vision transformers in many forms."""

from __future__ import annotations

import torch
from torch import nn
from vit_pytorch import SimpleViT
from vit_pytorch.cct import CCT
from vit_pytorch.vit import ViT

from ecosystem.programs import Backend, Step, program, training


def _training(backend: Backend, model: nn.Module) -> Step:
    call = backend.compile(model)
    return training(
        lambda x: call(x).square().mean(), model, [(torch.randn(2, 3, 16, 16),) for _ in range(2)]
    )


@program
def plain(backend: Backend) -> Step:
    return _training(
        backend,
        ViT(
            image_size=16,
            patch_size=8,
            num_classes=3,
            dim=32,
            depth=2,
            heads=2,
            mlp_dim=48,
            dim_head=16,
            dropout=0.1,
        ),
    )


@program
def simple(backend: Backend) -> Step:
    return _training(
        backend, SimpleViT(image_size=16, patch_size=8, num_classes=3, dim=32, depth=1, heads=2, mlp_dim=48)
    )


@program
def compact(backend: Backend) -> Step:
    model = CCT(
        img_size=16, embedding_dim=32, n_conv_layers=1, num_layers=1, num_heads=2, mlp_ratio=2, num_classes=3,
        stochastic_depth_rate=0.0,
    )  # fmt: skip
    return _training(backend, model)
