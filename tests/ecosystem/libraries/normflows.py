"""Normalising flows."""

from __future__ import annotations

import normflows
import torch

from ecosystem.programs import Backend, Step, program, settled, training


@program
def real_nvp(backend: Backend) -> Step:
    layers = []
    for number in range(2):
        network = normflows.nets.MLP([1, 8, 2], init_zeros=False)
        layers += [normflows.flows.AffineCouplingBlock(network), normflows.flows.Permute(2, mode="swap")]
        layers += [normflows.flows.ActNorm(2)] if number else []
    model = normflows.NormalizingFlow(normflows.distributions.base.DiagGaussian(2), layers)
    model.forward_kld(torch.randn(8, 2))  # sets the normalisation by its first batch
    call = backend.compile(model.forward_kld)
    return training(call, model, [(torch.randn(8, 2),), (torch.randn(8, 2),)])


@program
def neural_splines(backend: Backend) -> Step:
    layers = [
        normflows.flows.AutoregressiveRationalQuadraticSpline(3, 1, 8),
        normflows.flows.LULinearPermute(3),
    ]
    model = normflows.NormalizingFlow(normflows.distributions.base.DiagGaussian(3, trainable=False), layers)
    settled(model)
    call = backend.compile(model.forward_kld)
    return training(call, model, [(torch.randn(8, 3),), (torch.randn(8, 3),)])
