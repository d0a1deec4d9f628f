"""Cases: an architecture of a library by name, and a tiny model of it with inputs that eager accepts."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.utils import _pytree as pytree

Library = Literal["transformers", "timm"]
LIBRARIES: tuple[Library, ...] = ("transformers", "timm")
SEED = 20

Inputs = dict[str, Any]
"""Keyword arguments of a call of the model."""


@dataclass(frozen=True, slots=True)
class Case:
    """An architecture by the name that its library lists it under."""

    library: Library
    name: str


@dataclass(frozen=True, slots=True)
class Built:
    """A model with random weights, its class or entry point by name, and the inputs of a call."""

    model: torch.nn.Module
    inputs: Inputs
    title: str

    def on(self, device: torch.device) -> Built:
        """Return the model and its inputs on a device."""
        inputs: Inputs = pytree.tree_map(
            lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, self.inputs
        )
        return Built(self.model.to(device), inputs, self.title)


class NotRunnable(Exception):
    """Raised where every call of the model fails in eager; the message is eager's."""


def said(error: BaseException) -> str:
    """Return an error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def generator(seed: int) -> torch.Generator:
    """Return a new random generator with a seed."""
    return torch.Generator().manual_seed(seed)


def settled(model: torch.nn.Module) -> torch.nn.Module:
    """Give every parameter a value that matters, and switch off what draws random numbers in training.

    Many modules start from zeros or ones (biases, layer scales, the last norm of a block), through which nothing
    can be seen; a few leave memory as it was found.
    """
    noise = generator(SEED)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter.nan_to_num_(0.0, 0.0, 0.0).clamp_(-10, 10)
                parameter.add_(0.02 * torch.randn(parameter.shape, generator=noise, dtype=torch.float32))
    for module in model.modules():
        for name in ("p", "drop_prob", "layerdrop"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model


def accepted(model: torch.nn.Module, attempts: Iterable[Inputs]) -> Inputs:
    """Return the first inputs with which the model gives a floating result in eager, in training and not.

    Raises ``NotRunnable`` with the error of the first attempt.
    """
    first: Exception | None = None
    for inputs in attempts:
        trial = copy.deepcopy(model)
        try:
            torch.manual_seed(SEED)
            with torch.no_grad():
                found = list(floating(trial.eval()(**copy.deepcopy(inputs))))
                trial.train()(**copy.deepcopy(inputs))
            if not found:
                raise TypeError("no floating result")
        except Exception as error:
            first = first or error
        else:
            return inputs
    raise NotRunnable(said(first) if first is not None else "no inputs are known for it") from first


def floating(result: Any) -> Iterator[torch.Tensor]:
    """Yield the floating tensors of a result."""
    for leaf in pytree.tree_leaves(result):
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.numel():
            yield leaf
