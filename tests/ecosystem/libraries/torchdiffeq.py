"""Neural ordinary differential equations."""

from __future__ import annotations

import torch
from torch import nn
from torchdiffeq import odeint, odeint_adjoint

from ecosystem.programs import Backend, Step, inference, program, training


class Field(nn.Module):
    """Right-hand side of the equation."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 3))

    def forward(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.net(y * (1 + t))
        return result


@program
def compiled_field_adaptive(backend: Backend) -> Step:
    field = backend.compile(Field())
    times = torch.linspace(0, 1, 4)
    return inference(lambda y: odeint(field, y, times), [(torch.randn(5, 3),), (torch.randn(5, 3),)])


@program
def compiled_solver(backend: Backend) -> Step:
    field = Field()
    times = torch.linspace(0, 1, 4)
    solve = backend.compile(lambda y: odeint(field, y, times, method="rk4"))
    return training(
        lambda y: solve(y)[-1].square().mean(), field, [(torch.randn(5, 3),), (torch.randn(5, 3),)]
    )


@program
def adjoint_training(backend: Backend) -> Step:
    field = Field()
    backend.compile_in_place(field)
    times = torch.linspace(0, 1, 3)
    return training(
        lambda y: odeint_adjoint(field, y, times, method="rk4")[-1].square().mean(),
        field,
        [(torch.randn(5, 3),)],
    )
