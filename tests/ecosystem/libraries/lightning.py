"""The Trainer of Lightning."""

from __future__ import annotations

import warnings

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ecosystem.programs import Backend, Step, program


class Classifier(lightning.LightningModule):
    """A classifier, the model of which is compiled, and not the module around it."""

    def __init__(self, backend: Backend) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
        self.call = [backend.compile(self.model)]
        self.losses: list[torch.Tensor] = []

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], number: int) -> torch.Tensor:
        x, y = batch
        loss = nn.functional.cross_entropy(self.call[0](x), y)
        self.losses.append(loss.detach())
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


@program(steps=1)
def trainer(backend: Backend) -> Step:
    data = DataLoader(TensorDataset(torch.randn(20, 6), torch.randint(3, (20,))), batch_size=8)
    module = Classifier(backend)

    def step(number: int) -> dict[str, object]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer = lightning.Trainer(
                max_epochs=2,
                accelerator="cpu",
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
            )
            trainer.fit(module, data)
        parameters = {f"parameter {name}": value for name, value in module.named_parameters()}
        return {**parameters, "loss": torch.stack(module.losses)}

    return step


@program(steps=1)
def compiled_module(backend: Backend) -> Step:
    data = DataLoader(TensorDataset(torch.randn(16, 6), torch.randint(3, (16,))), batch_size=8)
    module = Classifier(Backend())

    def step(number: int) -> dict[str, object]:
        trainer = lightning.Trainer(
            max_epochs=1,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(backend.compile(module), data)
        return {f"parameter {name}": value for name, value in module.named_parameters()}

    return step
