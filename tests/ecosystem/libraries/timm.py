"""Image classifiers."""

from __future__ import annotations

import timm
import torch
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2

from ecosystem.programs import Backend, Step, inference, program, training


@program
def convnext_training(backend: Backend) -> Step:
    model = timm.create_model("convnext_atto", num_classes=3, depths=(1, 1, 1, 1), dims=(8, 16, 24, 32))
    call = backend.compile(model)
    criterion = LabelSmoothingCrossEntropy(0.1)
    batches = [(torch.randn(2, 3, 32, 32), torch.randint(3, (2,))) for _ in range(2)]
    return training(lambda x, y: criterion(call(x), y), model, batches)


@program
def vision_transformer_training(backend: Backend) -> Step:
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=3
    )
    call = backend.compile(model)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    batches = [(torch.randn(2, 3, 32, 32), torch.randint(3, (2,))) for _ in range(2)]
    return training(lambda x, y: torch.nn.functional.cross_entropy(call(x), y), model, batches, optimizer)


@program
def features(backend: Backend) -> Step:
    model = timm.create_model("mobilenetv3_small_050", features_only=True, pretrained=False).eval()
    return inference(backend.compile(model), [(torch.randn(1, 3, 32, 32),), (torch.randn(1, 3, 32, 32),)])
