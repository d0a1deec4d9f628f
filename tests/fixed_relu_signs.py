"""ReLUs that let through what those of another run did.

A rounding that carries one operand across zero moves gradients a hundred times as far as all other roundings together,
in eager too, so a judge of gradients compares runs once more with the signs of the most exact one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

Signs = Mapping[str, Tensor]
"""Masks of the positive operands of each ReLU, by the module's name."""


class HeldRelu(nn.Module):
    """A ReLU that lets through what another run lets through."""

    def __init__(self, positive: Tensor) -> None:
        super().__init__()
        self.positive = positive

    def forward(self, x: Tensor) -> Tensor:
        """Return elements that the other run found positive, zero for the rest."""
        return torch.where(self.positive, x, 0.0)


@contextmanager
def recorded_signs(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Note in the block which operands of the model's ReLUs are positive; a module that is called twice is left out."""
    signs: dict[str, Tensor] = {}
    calls: dict[str, int] = {}

    def note(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, given: tuple[Tensor, ...]) -> None:
            calls[name] = calls.get(name, 0) + 1
            signs[name] = given[0].detach() > 0

        return hook

    handles = [
        module.register_forward_pre_hook(note(name))
        for name, module in model.named_modules()
        if type(module) is nn.ReLU
    ]
    yield signs
    for handle in handles:
        handle.remove()
    for name in [name for name, count in calls.items() if count > 1]:
        del signs[name]


@contextmanager
def fixed_relu_signs(model: nn.Module, signs: Signs) -> Iterator[None]:
    """Let the model's ReLUs in the block let through what those of a recorded run did."""
    replaced = {name: model.get_submodule(name) for name in signs}
    for name, positive in signs.items():
        model.set_submodule(name, HeldRelu(positive))
    yield
    for name, module in replaced.items():
        model.set_submodule(name, module)
