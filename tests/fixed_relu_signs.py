"""ReLUs whose masks come from another run.

A rounding that carries one operand across zero moves gradients a hundred times as far as all other roundings together,
in eager too. A judge of gradients therefore compares runs once more with the masks of the most exact run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

Signs = Mapping[str, Tensor]
"""Masks of the positive operands of each ReLU, by the module's name."""


class MaskedRelu(nn.Module):
    """A ReLU that masks its operand as another run did."""

    def __init__(self, positive: Tensor) -> None:
        super().__init__()
        self.positive = positive

    def forward(self, x: Tensor) -> Tensor:
        """Return elements that the other run found positive, zero for the rest."""
        return torch.where(self.positive, x, 0.0)


@contextmanager
def observed_relu_signs(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Collect the masks of positive operands of the model's ReLUs within the block, without modules called twice."""
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
    """Give the model's ReLUs the masks of another run within the block."""
    replaced = {name: model.get_submodule(name) for name in signs}
    for name, positive in signs.items():
        model.set_submodule(name, MaskedRelu(positive))
    yield
    for name, module in replaced.items():
        model.set_submodule(name, module)
