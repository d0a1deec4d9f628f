"""Neural stochastic differential equations."""

from __future__ import annotations

import torch
import torchsde
from torch import nn

from ecosystem.programs import Backend, Step, program, training


class Equation(nn.Module):
    """Drift and diagonal diffusion."""

    noise_type, sde_type = "diagonal", "ito"

    def __init__(self) -> None:
        super().__init__()
        self.drift, self.diffusion = nn.Linear(3, 3), nn.Linear(3, 3)

    def f(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.drift(y).tanh()
        return result

    def g(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.diffusion(y).sigmoid()
        return result


@program
def euler_training(backend: Backend) -> Step:
    equation = Equation()
    equation.f = backend.compile(equation.f)
    equation.g = backend.compile(equation.g)
    times = torch.linspace(0, 1, 3)

    def loss(y: torch.Tensor) -> torch.Tensor:
        motion = torchsde.BrownianInterval(0.0, 1.0, size=(4, 3), entropy=7, dtype=y.dtype)
        result: torch.Tensor = torchsde.sdeint(equation, y, times, method="euler", dt=0.25, bm=motion)
        return result[-1].square().mean()

    return training(loss, equation, [(torch.randn(4, 3),), (torch.randn(4, 3),)])
