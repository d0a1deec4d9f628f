"""DLRM: embedding bags, a bottom and a top MLP, and the dot product of each pair of features between them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn


def mlp(widths: Sequence[int]) -> nn.Sequential:
    """Return linear layers with ReLU after each."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class DLRM(nn.Module):
    """f32[batch, 13] and i64[tables, batch, bag] to a click's logit, f32[batch]."""

    row: Tensor
    column: Tensor

    def __init__(self, tables: int, rows: int, width: int, hidden: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = mlp([13, hidden, hidden // 2, width])
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(mlp([pairs + width, hidden, hidden // 2]), nn.Linear(hidden // 2, 1))
        lower = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("row", lower[0])
        self.register_buffer("column", lower[1])

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        """Return a logit for each example."""
        dense = self.bottom(numbers)
        bags = [table(categories[index]) for index, table in enumerate(self.tables)]
        features = torch.stack([dense, *(bag.to(dense.dtype) for bag in bags)], 1)
        dots = torch.bmm(features, features.transpose(1, 2))[:, self.row, self.column]
        result: Tensor = self.top(torch.cat([dense, dots], 1)).squeeze(1)
        return result
