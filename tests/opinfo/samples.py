"""Sample inputs of an entry, copied so that no run sees another one's writes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch.utils import _pytree as pytree

from opinfo.entries import DTYPES, ENTRIES, Unit

Mode = Literal["forward", "inplace", "gradient", "dynamic"]
MODES: tuple[Mode, ...] = ("forward", "inplace", "gradient", "dynamic")
SEED = 20


@dataclass(frozen=True, slots=True)
class Sample:
    """The arguments of one call, and the function that makes its results differentiable."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    differentiable: Callable[[Any], Any]

    def copied(self, convert: Callable[[Any], Any] | None = None) -> Sample:
        """Return a sample of its own storages; views and shared storages stay so.

        `convert` replaces leaves instead, as for a run in another dtype.
        """
        copy = convert or Copier()
        args, kwargs = pytree.tree_map(copy, (self.args, self.kwargs))
        return Sample(args, kwargs, self.differentiable)

    def tensors(self) -> list[torch.Tensor]:
        """Return the tensors among the arguments, in order."""
        return [
            leaf for leaf in pytree.tree_leaves((self.args, self.kwargs)) if isinstance(leaf, torch.Tensor)
        ]

    def describe(self) -> str:
        """Return the arguments as text: tensors by dtype, shape and strides."""
        parts = [spelled(argument) for argument in self.args]
        parts += [f"{name}={spelled(argument)}" for name, argument in self.kwargs.items()]
        return f"({', '.join(parts)})"


class Copier:
    """Copies leaves: tensors with their whole storage, once for each storage, anything else as it is."""

    def __init__(self) -> None:
        self._storages: dict[int, torch.UntypedStorage] = {}

    def __call__(self, leaf: Any) -> Any:
        """Return the copy of one leaf."""
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if leaf.layout != torch.strided or type(leaf) is not torch.Tensor:
            return leaf.detach().clone().requires_grad_(leaf.requires_grad)
        plain = leaf.detach()
        conjugated, negated = plain.is_conj(), plain.is_neg()
        plain = plain.conj() if conjugated else plain
        plain = torch._neg_view(plain) if negated else plain
        storage = plain.untyped_storage()
        if storage._cdata not in self._storages:
            self._storages[storage._cdata] = storage.clone()
        copy = torch.empty(0, dtype=leaf.dtype, device=leaf.device)
        copy.set_(self._storages[storage._cdata], plain.storage_offset(), plain.shape, plain.stride())
        copy = copy.conj() if conjugated else copy
        copy = torch._neg_view(copy) if negated else copy
        return copy.requires_grad_(leaf.requires_grad)


WIDER = {
    torch.float32: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float16: torch.float64,
    torch.complex64: torch.complex128,
}


def widened(leaf: Any) -> Any:
    """Return a leaf in double precision; integers and anything else but dtypes as they are."""
    if isinstance(leaf, torch.dtype):
        return WIDER.get(leaf, leaf)
    if not isinstance(leaf, torch.Tensor):
        return leaf
    copy = leaf.detach().clone()
    return copy.to(WIDER.get(leaf.dtype, leaf.dtype)).requires_grad_(leaf.requires_grad)


def seed() -> None:
    """Seed every generator that samples and operators draw from."""
    torch.manual_seed(SEED)
    random.seed(SEED)
    np.random.seed(SEED)


def modes_of(unit: Unit) -> tuple[Mode, ...]:
    """Return the ways in which an entry is run for a dtype: only f32 has others than the plain one."""
    if unit.dtype != "f32":
        return ("forward",)
    entry = ENTRIES[unit.entry]
    modes: list[Mode] = ["forward"]
    if entry.inplace_variant is not None:
        modes.append("inplace")
    if entry.supports_autograd and torch.float32 in entry.supported_backward_dtypes(unit.device):
        modes.append("gradient")
    return (*modes, "dynamic")


def samples_of(unit: Unit, mode: Mode, limit: int | None) -> list[Sample]:
    """Return the entry's samples for a dtype, at most `limit`; the same ones whenever asked."""
    entry = ENTRIES[unit.entry]
    seed()
    made = entry.sample_inputs(unit.device, DTYPES[unit.dtype], requires_grad=mode == "gradient")
    if mode == "inplace":
        made = (sample for sample in made if not sample.broadcasts_input)
    return [
        Sample((sample.input, *sample.args), dict(sample.kwargs), sample.output_process_fn_grad)
        for sample in itertools.islice(made, limit)
    ]


def spelled(argument: Any) -> str:
    """Return an argument as text."""
    if isinstance(argument, torch.Tensor):
        kind = str(argument.dtype).removeprefix("torch.")
        if argument.layout != torch.strided:
            return f"{kind}{list(argument.shape)} {str(argument.layout).removeprefix('torch.')}"
        strides = "" if argument.is_contiguous() else f" strides {list(argument.stride())}"
        return f"{kind}{list(argument.shape)}{strides}"
    if isinstance(argument, tuple | list):
        return f"[{', '.join(map(spelled, argument))}]"
    return repr(argument)[:80]
