"""Differentiable computer vision."""

from __future__ import annotations

import kornia
import torch

from ecosystem.programs import Backend, Step, inference, program, training


def _images(count: int = 2) -> list[tuple[torch.Tensor]]:
    return [(torch.rand(2, 3, 16, 20),) for _ in range(count)]


@program
def filters(backend: Backend) -> Step:
    def process(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        blurred = kornia.filters.gaussian_blur2d(x, (5, 5), (1.2, 1.2))
        return (
            blurred,
            kornia.filters.sobel(x),
            kornia.filters.median_blur(x, (3, 3)),
            kornia.filters.laplacian(x, 3),
        )

    return inference(backend.compile(process), _images())


@program
def colours(backend: Backend) -> Step:
    def process(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return kornia.color.rgb_to_hsv(x), kornia.color.rgb_to_lab(x), kornia.enhance.equalize_clahe(x)

    return inference(backend.compile(process), _images())


@program
def warps(backend: Backend) -> Step:
    def process(x: torch.Tensor, angle: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rotated = kornia.geometry.transform.rotate(x, angle)
        return rotated, kornia.geometry.transform.resize(rotated, (9, 13), antialias=True)

    return inference(backend.compile(process), [(x, torch.tensor([20.0, -35.0])) for (x,) in _images()])


@program
def homography_training(backend: Backend) -> Step:
    homography = torch.nn.Parameter(torch.eye(3)[None] + 0.05 * torch.randn(1, 3, 3))

    def loss(x: torch.Tensor) -> torch.Tensor:
        warped = kornia.geometry.transform.warp_perspective(x, homography.expand(2, 3, 3), (16, 20))
        return 1 - kornia.metrics.ssim(warped, x, 5).mean()

    return training(backend.compile(loss), [("homography", homography)], _images())


@program
def augmentation(backend: Backend) -> Step:
    augment = kornia.augmentation.AugmentationSequential(
        kornia.augmentation.RandomHorizontalFlip(p=0.5),
        kornia.augmentation.ColorJiggle(0.1, 0.1, 0.1, 0.1, p=1.0),
    )
    return inference(backend.compile(augment), _images())
