"""Runs of a model, eager, in double precision or compiled, and the tensors that they leave."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from zoo.cases import SEED, Inputs, floating, generator
from zoo.judge import Leaves

Mode = Literal["inference", "training"]
MODES: tuple[Mode, ...] = ("inference", "training")
Wrap = Callable[[torch.nn.Module], Callable[..., Any]]
"""Wraps a model in the function that is called for it."""


class InDouble(TorchFunctionMode):
    """Runs operations in double precision where the program asks for single precision."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace the dtype wherever one is given."""
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        named = {name: _doubled(value) for name, value in (kwargs or {}).items()}
        return func(*map(_doubled, args), **named)


def _doubled(leaf: Any) -> Any:
    return torch.float64 if leaf is torch.float32 else leaf


def run(model: torch.nn.Module, inputs: Inputs, mode: Mode, wrap: Wrap = lambda model: model) -> Leaves:
    """Run a copy of the model, twice on different values in inference, one step in training."""
    model = copy.deepcopy(model).train(mode == "training")
    call = wrap(model)
    found: dict[str, torch.Tensor] = {}
    if mode == "training":
        found |= _step(model, call, copy.deepcopy(inputs))
    else:
        with torch.no_grad():
            for number, values in enumerate((inputs, other_values(inputs))):
                torch.manual_seed(SEED)
                result = call(**copy.deepcopy(values))
                leaves = enumerate(pytree.tree_leaves(result))
                found |= {f"output {number}.{i}": x.clone() for i, x in leaves if isinstance(x, torch.Tensor)}
    found |= {f"buffer {name}": buffer for name, buffer in model.named_buffers()}
    return {label: tensor.detach() for label, tensor in found.items()}


def _step(model: torch.nn.Module, call: Callable[..., Any], inputs: Inputs) -> dict[str, torch.Tensor]:
    """Run one step of training, whose loss is a sum of the results with random weights."""
    torch.manual_seed(SEED)
    result = call(**inputs)
    leaves = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    found = {f"output {number}": leaf for number, leaf in enumerate(leaves)}
    weights = generator(SEED)
    losses = []
    for leaf in floating(result):
        weight = torch.randn(leaf.shape, generator=weights, dtype=torch.float32).to(leaf)
        if leaf.requires_grad:
            losses.append((leaf.clamp(-1e6, 1e6) * weight).mean())
    torch.stack(losses).sum().backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            found[f"gradient {name}"] = parameter.grad
    return found


def other_values(inputs: Inputs) -> Inputs:
    """Return inputs of the same shapes and dtypes: integers reversed, floats negated."""

    def changed(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return -leaf if leaf.is_floating_point() else leaf.roll(1)

    other: Inputs = pytree.tree_map(changed, inputs)
    return other


def in_double(model: torch.nn.Module, inputs: Inputs, mode: Mode) -> Leaves:
    """Run eager in double precision."""
    wide = copy.deepcopy(model).double()
    values = pytree.tree_map(lambda leaf: leaf.double() if _single(leaf) else leaf, inputs)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return run(wide, values, mode, _in_double)
    finally:
        torch.set_default_dtype(before)


def _in_double(model: torch.nn.Module) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with InDouble():
            return model(*args, **kwargs)

    return call


def rounded_otherwise(model: torch.nn.Module, inputs: Inputs, mode: Mode, seed: int) -> Leaves:
    """Run eager from weights and inputs with the last bit changed, up or down at random."""
    noise = generator(seed)

    def moved(leaf: Any) -> Any:
        if not _single(leaf):
            return leaf
        towards = (torch.randint(0, 2, leaf.shape, generator=noise) * 2 - 1).to(leaf) * torch.inf
        return torch.where(leaf == 0, leaf, torch.nextafter(leaf, towards))

    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            if _single(parameter):
                parameter.copy_(moved(parameter))
    return run(other, pytree.tree_map(moved, inputs), mode)


def _single(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float32
