"""Small models of the architectures of timm, one for each of its modules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from zoo.cases import SEED, Built, Inputs, NotRunnable, accepted, generator, said, settled
from zoo.timm_models import SMALLEST
from zoo.torchvision_operators import import_torchvision

import_torchvision()

import timm  # noqa: E402

SIDES = (64, 96, 128, 160, 224, 256)
"""Sides of images, the smallest first."""

SHRUNK: tuple[dict[str, Any], ...] = ({"img_size": 64, "depth": 2}, {"img_size": 64}, {"depth": 2}, {})
"""Arguments to try on a model's entry point, so that it has a small image and few blocks."""


def names() -> list[str]:
    """Return timm's modules of models."""
    return [module for module in timm.list_modules() if timm.list_models(module=module)]


def build(name: str) -> Built:
    """Build a module's smallest model. Raises ``NotRunnable`` where eager takes none of the images."""
    title = SMALLEST.get(name) or timm.list_models(module=name)[0]
    errors: list[Exception] = []
    for how in SHRUNK:
        torch.manual_seed(SEED)
        try:
            model = settled(timm.create_model(title, num_classes=8, **how))
            return Built(model, accepted(model, images(model)), title)
        except Exception as error:
            errors.append(error)
    raise NotRunnable(said(errors[-1])) from errors[-1]


def images(model: torch.nn.Module) -> Iterator[Inputs]:
    """Yield images to try, the smallest first."""
    for side in SIDES:
        yield {"x": torch.randn(2, 3, side, side, generator=generator(SEED))}
