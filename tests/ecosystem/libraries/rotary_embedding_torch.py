"""Rotary embeddings of positions."""

from __future__ import annotations

import torch
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb

from ecosystem.programs import Backend, Step, inference, program


@program
def queries_and_keys(backend: Backend) -> Step:
    rotary = RotaryEmbedding(dim=8)

    def attend(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        q, k = rotary.rotate_queries_or_keys(q), rotary.rotate_queries_or_keys(k)
        return torch.nn.functional.scaled_dot_product_attention(q, k, k)

    call = backend.compile(attend)
    return inference(call, [(torch.randn(1, 2, n, 16), torch.randn(1, 2, n, 16)) for n in (6, 6, 9)])


@program
def axial(backend: Backend) -> Step:
    rotary = RotaryEmbedding(dim=8, freqs_for="pixel", max_freq=16)
    call = backend.compile(lambda q: apply_rotary_emb(rotary.get_axial_freqs(4, 5), q))
    return inference(call, [(torch.randn(1, 2, 4, 5, 32),), (torch.randn(1, 2, 4, 5, 32),)])
