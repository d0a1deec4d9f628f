"""U-Net with batch norm: four levels down and up, skips by concatenation."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def twice(inputs: int, outputs: int) -> nn.Sequential:
    """Return two convolutions, each with batch norm and ReLU."""
    layers: list[nn.Module] = []
    for width in (inputs, outputs):
        layers += [nn.Conv2d(width, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """f32[batch, 3, height, width] to f32[batch, classes, height, width]; sides are multiples of 16."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(5)]
        self.down = nn.ModuleList(map(twice, [3, *widths[:-1]], widths))
        self.pool = nn.MaxPool2d(2)
        self.grow = nn.ModuleList(
            nn.ConvTranspose2d(2 * small, small, 2, stride=2) for small in reversed(widths[:-1])
        )
        self.up = nn.ModuleList(twice(2 * small, small) for small in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return a score for each class and pixel."""
        skips = []
        for block in self.down[:-1]:
            x = block(x)
            skips.append(x)
            x = self.pool(x)
        x = self.down[-1](x)
        for grow, block in zip(self.grow, self.up):
            x = block(torch.cat([skips.pop(), grow(x)], 1))
        result: Tensor = self.head(x)
        return result
