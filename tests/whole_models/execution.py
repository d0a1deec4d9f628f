"""Run of a model, eager or compiled, and the tensors that it leaves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from whole_models.architectures import Loss, Sample

Mode = Literal["infer", "train"]
Program = Callable[..., Any]


class TrainingStep(nn.Module):
    """A model followed by its loss, so that both are in the compiled program."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, target: Tensor, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss, and the output from which it is computed."""
        output = self.model(*inputs)
        return self.loss(output, target), output


class Runner:
    """A sample on a device, and its runs, each from the same state of the model."""

    def __init__(self, sample: Sample, mode: Mode, device: str) -> None:
        self.mode, self.device = mode, device
        self.sample = replace(
            sample,
            model=sample.model.to(device).train(mode == "train"),
            inputs=tuple(each.to(device) for each in sample.inputs),
            target=sample.target.to(device),
        )
        self.program: nn.Module = self.sample.model
        if mode == "train":
            self.program = TrainingStep(self.sample.model, sample.loss)
        self.state = {name: buffer.clone() for name, buffer in self.sample.model.named_buffers()}

    def in_double(self) -> Runner:
        """Return the same in double precision, with the same weights."""

        def wide(tensor: Tensor) -> Tensor:
            return tensor.double() if tensor.is_floating_point() else tensor

        self._restore()
        inputs = tuple(map(wide, self.sample.inputs))
        model = copy.deepcopy(self.sample.model).double()
        twin = replace(self.sample, model=model, inputs=inputs, target=wide(self.sample.target))
        return Runner(twin, self.mode, self.device)

    def run(self, program: Program, narrow: bool) -> dict[str, Tensor]:
        """Call a program that stands for `self.program`, in bf16 autocast if `narrow`.

        The result has parameters' gradients and buffers by name in forward order, then the output and the loss.
        """
        model = self.sample.model
        self._restore()
        model.zero_grad(set_to_none=True)
        with torch.autocast(self.device, torch.bfloat16, enabled=narrow):
            if self.mode == "train":
                loss, output = program(self.sample.target, *self.sample.inputs)
            else:
                with torch.no_grad():
                    output = program(*self.sample.inputs)
        found = {}
        if self.mode == "train":
            loss.backward()
        for prefix, module in model.named_modules():
            dot = "." if prefix else ""
            for name, parameter in module.named_parameters(recurse=False):
                if parameter.grad is not None:
                    found[f"{prefix}{dot}{name}.grad"] = parameter.grad
            for name, buffer in module.named_buffers(recurse=False):
                found[f"{prefix}{dot}{name}"] = buffer.clone()
        model.zero_grad(set_to_none=True)
        found["output"] = output.detach().clone()
        if self.mode == "train":
            found["loss"] = loss.detach().clone()
        return found

    @contextmanager
    def disturbed(self, seed: int) -> Iterator[None]:
        """Move each parameter by about the rounding of an f32 inside the block: another draw of rounding errors."""
        generator = torch.Generator(self.device).manual_seed(seed)
        kept = [parameter.detach().clone() for parameter in self.sample.model.parameters()]
        with torch.no_grad():
            for parameter in self.sample.model.parameters():
                noise = torch.empty_like(parameter).normal_(generator=generator)
                parameter.mul_(1 + noise.double() * 2.0**-24)
        yield
        with torch.no_grad():
            for parameter, before in zip(self.sample.model.parameters(), kept):
                parameter.copy_(before)

    def _restore(self) -> None:
        with torch.no_grad():
            for name, buffer in self.sample.model.named_buffers():
                buffer.copy_(self.state[name])
