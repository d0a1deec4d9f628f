"""Programs: what a user of a library compiles, with random weights and small sizes, and the steps that they take.

A module of `ecosystem.libraries` has one library's programs: functions that are marked by :func:`program`. Each gets
a :class:`Backend` and returns a step, which is called with 0, 1, 2, …; what the steps return is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Step = Callable[[int], Any]
"""One call of a program by number. A result is a tensor or a tree of them; the first words of the keys of a dict
say what its values are, as in `gradient layer.weight`."""

MARK = "steps_of_program"


@dataclass(frozen=True, slots=True)
class Backend:
    """The backend that a program is compiled with; without a name the program runs in eager."""

    name: str | None = None

    def compile(self, target: Any, **options: Any) -> Any:
        """Return a function or module as `torch.compile` makes it, or as it is."""
        return target if self.name is None else torch.compile(target, backend=self.name, **options)

    def compile_in_place(self, module: nn.Module, **options: Any) -> None:
        """Call `module.compile`."""
        if self.name is not None:
            module.compile(backend=self.name, **options)


Prepare = Callable[[Backend], Step]


def program(prepare: Prepare | None = None, *, steps: int = 3) -> Any:
    """Mark a function as a program, of which `steps` steps are compared."""

    def mark(function: Prepare) -> Prepare:
        setattr(function, MARK, steps)
        return function

    return mark if prepare is None else mark(prepare)


def inference(call: Callable[..., Any], batches: Sequence[Sequence[Any]]) -> Step:
    """Return a step that calls a function without gradients, with one batch of arguments after the other."""

    def step(number: int) -> Any:
        with torch.no_grad():
            return call(*batches[number % len(batches)])

    return step


def training(
    loss: Callable[..., torch.Tensor],
    parameters: nn.Module | Iterable[tuple[str, torch.Tensor]],
    batches: Sequence[Sequence[Any]],
    optimizer: torch.optim.Optimizer | None = None,
) -> Step:
    """Return a step that computes a loss and its gradients; with an optimizer the parameters are results too."""
    named = dict(parameters.named_parameters() if isinstance(parameters, nn.Module) else parameters)

    def step(number: int) -> Mapping[str, torch.Tensor]:
        for parameter in named.values():
            parameter.grad = None
        value = loss(*batches[number % len(batches)])
        value.backward()
        result = {"loss": value.detach()}
        for name, parameter in named.items():
            if parameter.grad is not None:
                result[f"gradient {name}"] = parameter.grad.detach().clone()
        if optimizer is not None:
            optimizer.step()
            result |= {f"parameter {name}": parameter.detach().clone() for name, parameter in named.items()}
        return result

    return step


def settled(module: nn.Module) -> nn.Module:
    """Add noise to every floating parameter, since many start as zeros, and return the module."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point():
                parameter.add_(0.02 * torch.randn(parameter.shape))
    return module
