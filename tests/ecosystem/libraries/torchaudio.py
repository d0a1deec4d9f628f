"""Transforms of sound and models of speech."""

from __future__ import annotations

import torch
from torchaudio import functional as F
from torchaudio import models, transforms

from ecosystem.programs import Backend, Step, inference, program, training


@program
def mel_spectrogram(backend: Backend) -> Step:
    transform = torch.nn.Sequential(
        transforms.MelSpectrogram(8000, n_fft=128, hop_length=64, n_mels=16), transforms.AmplitudeToDB()
    )
    return inference(backend.compile(transform), [(torch.randn(2, 1600),), (torch.randn(2, 1600),)])


@program
def resampling_and_filters(backend: Backend) -> Step:
    def process(x: torch.Tensor) -> torch.Tensor:
        x = F.resample(x, 8000, 6000)
        return F.compute_deltas(F.preemphasis(x).unsqueeze(-2))

    return inference(backend.compile(process), [(torch.randn(2, 800),), (torch.randn(2, 800),)])


@program
def conformer_training(backend: Backend) -> Step:
    model = models.Conformer(16, 2, 32, 1, 7, dropout=0.0)
    call = backend.compile(model)
    lengths = torch.tensor([20, 14])
    return training(lambda x: call(x, lengths)[0].square().mean(), model, [(torch.randn(2, 20, 16),)])


@program
def conv_tasnet_training(backend: Backend) -> Step:
    model = models.ConvTasNet(2, 8, 16, 3, 8, 8, 2, 1)
    call = backend.compile(model)
    return training(lambda x: call(x).square().mean(), model, [(torch.randn(2, 1, 400),) for _ in range(2)])
