"""A sample: the arguments of one call, copied so that no run sees another one's writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree


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


def sample_of(made: Any) -> Sample:
    """Return one of the database's sample inputs."""
    return Sample((made.input, *made.args), dict(made.kwargs), made.output_process_fn_grad)


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
