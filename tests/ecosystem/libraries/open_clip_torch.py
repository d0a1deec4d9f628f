"""Models of images and texts."""

from __future__ import annotations

import open_clip
import torch
from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg

from ecosystem.programs import Backend, Step, inference, program, training


def _clip() -> CLIP:
    vision = CLIPVisionCfg(layers=2, width=32, head_width=16, patch_size=8, image_size=16)
    text = CLIPTextCfg(context_length=12, vocab_size=48, width=32, heads=2, layers=2)
    return CLIP(16, vision, text)


def _batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.randn(3, 3, 16, 16), torch.randint(48, (3, 12))) for _ in range(2)]


@program
def contrastive_training(backend: Backend) -> Step:
    model = _clip()
    call = backend.compile(model)
    criterion = open_clip.ClipLoss()
    return training(lambda image, text: criterion(*call(image, text)), model, _batches())


@program
def encoders(backend: Backend) -> Step:
    model = _clip().eval()
    image, text = backend.compile(model.encode_image), backend.compile(model.encode_text)
    return inference(lambda x, y: image(x, normalize=True) @ text(y, normalize=True).T, _batches())
