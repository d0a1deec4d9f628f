"""Dictionaries of tensors, and modules on them."""

from __future__ import annotations

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn

from ecosystem.programs import Backend, Step, inference, program, training


@program
def modules_training(backend: Backend) -> Step:
    model = TensorDictSequential(
        TensorDictModule(nn.Linear(6, 8), ["observation"], ["hidden"]),
        TensorDictModule(nn.Tanh(), ["hidden"], ["hidden"]),
        TensorDictModule(nn.Linear(8, 2), ["hidden"], ["action"]),
    )
    call = backend.compile(model)

    def loss(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = call(TensorDict({"observation": x}, [len(x)]))["action"]
        return result.square().mean()

    return training(loss, model, [(torch.randn(5, 6),), (torch.randn(5, 6),)])


@program
def operations(backend: Backend) -> Step:
    def process(x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        data = TensorDict({"a": x, "nested": {"b": y}}, [4])
        data = torch.stack([data, data.apply(lambda value: value * 2 + 1)])
        data = data.reshape(-1)[1:6] + 1
        return {"output": data["a"], "output nested": data["nested", "b"]}

    return inference(backend.compile(process), [(torch.randn(4, 3), torch.randn(4, 2)) for _ in range(2)])
