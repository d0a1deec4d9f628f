"""Diffusion of images."""

from __future__ import annotations

import torch
from denoising_diffusion_pytorch import GaussianDiffusion, Unet

from ecosystem.programs import Backend, Step, program, training


@program
def diffusion_training(backend: Backend) -> Step:
    model = Unet(dim=8, dim_mults=(1, 2), flash_attn=False)
    diffusion = GaussianDiffusion(model, image_size=8, timesteps=10, auto_normalize=False)
    call = backend.compile(diffusion)
    return training(call, model, [(torch.rand(2, 3, 8, 8),), (torch.rand(2, 3, 8, 8),)])
