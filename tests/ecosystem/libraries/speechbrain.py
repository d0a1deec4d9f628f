"""Models of speech."""

from __future__ import annotations

import torch
from speechbrain.lobes.features import Fbank
from speechbrain.lobes.models.ECAPA_TDNN import ECAPA_TDNN
from speechbrain.nnet.losses import nll_loss

from ecosystem.programs import Backend, Step, inference, program, training


@program
def speaker_embedding_training(backend: Backend) -> Step:
    model = ECAPA_TDNN(
        16, lin_neurons=8, channels=[16] * 5, attention_channels=8, se_channels=8, res2net_scale=4
    )
    call = backend.compile(model)
    return training(lambda x: call(x).square().mean(), model, [(torch.randn(2, 20, 16),) for _ in range(2)])


@program
def filter_banks(backend: Backend) -> Step:
    features = Fbank(n_mels=16)
    return inference(backend.compile(features), [(torch.randn(2, 1600),), (torch.randn(2, 1600),)])


@program
def loss_with_lengths(backend: Backend) -> Step:
    head = torch.nn.Linear(6, 5)
    lengths = torch.tensor([1.0, 0.6])
    loss = backend.compile(lambda x, y: nll_loss(head(x).log_softmax(-1), y, length=lengths))
    return training(loss, head, [(torch.randn(2, 10, 6), torch.randint(5, (2, 10))) for _ in range(2)])
