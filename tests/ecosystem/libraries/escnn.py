"""Equivariant convolutions."""

from __future__ import annotations

import torch
from escnn import gspaces
from escnn import nn as enn

from ecosystem.programs import Backend, Step, inference, program, training


def _model() -> torch.nn.Module:
    space = gspaces.rot2dOnR2(4)
    plain, regular = (
        enn.FieldType(space, [space.trivial_repr]),
        enn.FieldType(space, 2 * [space.regular_repr]),
    )
    return enn.SequentialModule(
        enn.R2Conv(plain, regular, 3, padding=1),
        enn.InnerBatchNorm(regular),
        enn.ReLU(regular),
        enn.R2Conv(regular, regular, 3, padding=1),
        enn.GroupPooling(regular),
    )


@program
def training_of_convolutions(backend: Backend) -> Step:
    model = _model()
    kind = model.in_type

    def run(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = model(enn.GeometricTensor(x, kind)).tensor
        return result.square().mean()

    return training(backend.compile(run), model, [(torch.randn(2, 1, 9, 9),), (torch.randn(2, 1, 9, 9),)])


@program
def exported(backend: Backend) -> Step:
    model = _model().eval().export()
    return inference(backend.compile(model), [(torch.randn(2, 1, 9, 9),), (torch.randn(2, 1, 9, 9),)])
