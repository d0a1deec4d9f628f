"""Embeddings of sentences."""

from __future__ import annotations

import torch
from sentence_transformers import util
from sentence_transformers.models import Dense, Normalize, Pooling
from torch import nn
from transformers import BertConfig, BertModel

from ecosystem.programs import Backend, Step, inference, program, training


class Embedder(nn.Module):
    """A tiny encoder with the modules of the library after it."""

    def __init__(self) -> None:
        super().__init__()
        sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
        self.encoder = BertModel(BertConfig(vocab_size=48, **sizes), add_pooling_layer=False).eval()
        self.head = nn.Sequential(Pooling(32, pooling_mode="mean"), Dense(32, 16), Normalize())

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.encoder(input_ids=tokens, attention_mask=mask).last_hidden_state
        result: torch.Tensor = self.head({"token_embeddings": hidden, "attention_mask": mask})[
            "sentence_embedding"
        ]
        return result


def _batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    mask = (torch.arange(8)[None] < torch.tensor([[8], [5], [7]])).long()
    return [(torch.randint(48, (3, 8)), mask) for _ in range(2)]


@program
def similarities(backend: Backend) -> Step:
    call = backend.compile(Embedder().eval())
    return inference(lambda *batch: util.cos_sim(call(*batch), call(*batch)), _batches())


@program
def contrastive_training(backend: Backend) -> Step:
    model = Embedder().eval()
    call = backend.compile(model)

    def loss(*batch: torch.Tensor) -> torch.Tensor:
        vectors = call(*batch)
        return nn.functional.cross_entropy(20 * util.cos_sim(vectors, vectors.roll(1, 0)), torch.arange(3))

    return training(loss, model, _batches())
