"""Quantisation by codebooks."""

from __future__ import annotations

import torch
from vector_quantize_pytorch import FSQ, LFQ, VectorQuantize

from ecosystem.programs import Backend, Step, inference, program, training


@program
def codebook_inference(backend: Backend) -> Step:
    model = backend.compile(VectorQuantize(dim=16, codebook_size=12).eval())
    return inference(model, [(torch.randn(2, 9, 16),), (torch.randn(2, 9, 16),)])


@program
def codebook_training(backend: Backend) -> Step:
    model = VectorQuantize(dim=16, codebook_size=12, codebook_dim=8, decay=0.8)
    call = backend.compile(model)

    def loss(x: torch.Tensor) -> torch.Tensor:
        quantised, _, commitment = call(x)
        return quantised.square().mean() + commitment.sum()

    return training(loss, model, [(torch.randn(2, 9, 16),), (torch.randn(2, 9, 16),)])


@program
def finite_scalars(backend: Backend) -> Step:
    model = torch.nn.Sequential(torch.nn.Linear(6, 4), FSQ([8, 5, 5, 5]))
    call = backend.compile(model)
    return training(lambda x: call(x)[0].square().mean(), model, [(torch.randn(2, 7, 6),)])


@program
def lookup_free(backend: Backend) -> Step:
    model = LFQ(codebook_size=64, dim=6).eval()
    return inference(backend.compile(model), [(torch.randn(2, 7, 6),), (torch.randn(2, 7, 6),)])
