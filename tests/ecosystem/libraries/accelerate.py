"""Training loops, and compilation by regions."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from accelerate.utils import compile_regions
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from ecosystem.programs import Backend, Step, inference, program


@program
def training_loop(backend: Backend) -> Step:
    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    compiled, optimizer = accelerator.prepare(backend.compile(model), optimizer)
    batches = [(torch.randn(5, 6), torch.randint(3, (5,))) for _ in range(3)]

    def step(number: int) -> dict[str, torch.Tensor]:
        x, y = batches[number % 3]
        optimizer.zero_grad()
        with accelerator.autocast():
            loss = nn.functional.cross_entropy(compiled(x), y)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return {"loss": loss, **{f"parameter {name}": value for name, value in model.named_parameters()}}

    return step


@program
def regions(backend: Backend) -> Step:
    config = GPT2Config(vocab_size=48, n_positions=16, n_embd=32, n_layer=3, n_head=2, use_cache=False)
    model = GPT2LMHeadModel(config).eval()
    if backend.name is not None:
        model = compile_regions(model, backend=backend.name)
    return inference(lambda x: model(x).logits, [(torch.randint(48, (1, 9)),) for _ in range(2)])
