"""Train a tiny language model by the Trainer of transformers under litz, and compare its losses with eager's.

It needs transformers and accelerate.
"""

from __future__ import annotations

import tempfile

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


class Sequences(Dataset[dict[str, Tensor]]):
    """Sequences that count up from a random start; 32 numbers below 64 each."""

    def __init__(self, count: int) -> None:
        starts = torch.randint(0, 64, (count, 1), generator=torch.Generator().manual_seed(1))
        self.tokens = (starts + torch.arange(32)) % 64

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def losses(compiled: bool, steps: int = 4) -> list[float]:
    """Train a model from the same start, and return the loss of every step."""
    set_seed(0)
    config = GPT2Config(vocab_size=64, n_positions=32, n_embd=48, n_layer=1, n_head=4)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=8,
            learning_rate=1e-3,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        model = GPT2LMHeadModel(config)
        if compiled:
            model.compile(backend="litz")
        trainer = Trainer(model, arguments, train_dataset=Sequences(256))
        trainer.train()
    return [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]


def main() -> None:
    """Train twice and print both curves."""
    eager, ours = losses(compiled=False), losses(compiled=True)
    torch.testing.assert_close(ours, eager, rtol=1e-3, atol=1e-3)
    for step, (one, other) in enumerate(zip(eager, ours, strict=True), 1):
        print(f"step {step:2d}   litz {other:.4f}   eager {one:.4f}")


if __name__ == "__main__":
    main()
