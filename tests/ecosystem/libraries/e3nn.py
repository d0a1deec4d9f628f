"""Equivariant neural networks."""

from __future__ import annotations

import torch
from e3nn import o3
from e3nn.nn import FullyConnectedNet, Gate

from ecosystem.programs import Backend, Step, inference, program, training


@program
def spherical_harmonics(backend: Backend) -> Step:
    call = backend.compile(o3.SphericalHarmonics([0, 1, 2, 3], normalize=True))
    return inference(call, [(torch.randn(7, 3),), (torch.randn(7, 3),)])


class Convolution(torch.nn.Module):
    """A convolution with weights from distances, and a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.harmonics = o3.SphericalHarmonics([0, 1], True)
        self.gate = Gate("8x0e", [torch.tanh], "4x0e", [torch.sigmoid], "4x1o")
        self.combine = o3.FullyConnectedTensorProduct(
            "4x0e", "0e + 1o", self.gate.irreps_in, shared_weights=False
        )
        self.weights = FullyConnectedNet([1, 8, self.combine.weight_numel], torch.tanh)

    def forward(self, x: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        lengths = vectors.norm(dim=-1, keepdim=True)
        result: torch.Tensor = self.gate(self.combine(x, self.harmonics(vectors), self.weights(lengths)))
        return result


@program
def convolution_training(backend: Backend) -> Step:
    model = Convolution()
    call = backend.compile(model)
    batches = [(torch.randn(6, 4), torch.randn(6, 3)) for _ in range(2)]
    return training(lambda x, vectors: call(x, vectors).square().mean(), model, batches)
