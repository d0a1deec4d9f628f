"""Train a small classifier under `torch.compile(backend="litz")` and compare its losses with eager's."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def classifier() -> nn.Module:
    """Return a two-layer network with layer norm; f32[batch, 16] to the scores of three classes."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 3))


def points(count: int) -> tuple[Tensor, Tensor]:
    """Return random points and the classes that their first two coordinates put them in."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, 16, generator=generator)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def train(backend: str, steps: int = 40) -> list[float]:
    """Train from the same start and return the loss of every step."""
    model = classifier()
    step_of = torch.compile(lambda x, y: F.cross_entropy(model(x), y), backend=backend)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x, y = points(512)
    losses = []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = step_of(x, y)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses


def main() -> None:
    """Train twice and print both curves."""
    ours, eager = train("litz"), train("eager")
    torch.testing.assert_close(ours, eager, rtol=1e-3, atol=1e-4)
    for step in range(0, len(ours), 10):
        print(f"step {step:2d}   litz {ours[step]:.5f}   eager {eager[step]:.5f}")
    print(f"last     litz {ours[-1]:.5f}   eager {eager[-1]:.5f}")


if __name__ == "__main__":
    main()
