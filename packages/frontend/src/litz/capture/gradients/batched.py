"""Backwards under ``vmap``, such as that of ``torch.autograd.grad(..., is_grads_batched=True)``.

A kernel reads memory, and a batched tensor is no memory of its own shape, so the backward runs for one element of the
batch after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from litz.host.runtime.load import HostFunction
from litz.host.runtime.torch_memory import copied

_MOST_LEVELS = 64
"""Number of levels of ``vmap`` that autograd's own batched tensors may have."""

_REFUSAL = (
    "the backward of a compiled function was called within torch.vmap, which is not supported: call torch.vmap inside "
    "the compiled function, or torch.autograd.grad with is_grads_batched=True"
)

_is_batched = torch._C._functorch.is_legacy_batchedtensor


def in_batches(
    backward: HostFunction, incoming: Sequence[int], overwritten: Sequence[int] = ()
) -> HostFunction:
    """Return the call of a backward whose arguments at the positions ``incoming`` may be batched by autograd.

    Those at the positions ``overwritten``, which it may write, are copied for each element of a batch but the last.
    Raises ``RuntimeError`` under ``torch.vmap``, as AOTAutograd does.
    """

    def run(args: list[Any]) -> Sequence[Any]:
        gradients = [args[k] for k in incoming]
        if any(map(torch._C._functorch.is_batchedtensor, gradients)):
            raise RuntimeError(_REFUSAL)
        return (
            each_element(args, _level_of(gradients)) if any(map(_is_batched, gradients)) else backward(args)
        )

    def each_element(args: list[Any], level: int) -> Sequence[Any]:
        batched = {k: each for k in range(len(args)) if (each := _with_batch(args[k], level)) is not None}
        (count,) = {len(each) for each in batched.values()}
        results = []
        for position in range(count):
            given = [batched[k][position] if k in batched else each for k, each in enumerate(args)]
            for k in overwritten if position < count - 1 else ():
                given[k] = copied(given[k])
            results.append(run(given))
        return [_batch(values, level) for values in zip(*results, strict=True)]

    return run


def _with_batch(value: Any, level: int) -> torch.Tensor | None:
    """Return a tensor with a level's batch dimension in front; ``None`` for what has no such dimension."""
    if not isinstance(value, torch.Tensor) or not _is_batched(value):
        return None
    plain: torch.Tensor = torch._remove_batch_dim(
        value, level, 0, 0
    )  # other levels give a dimension of size 0
    return plain if len(plain) else None


def _level_of(tensors: Sequence[torch.Tensor]) -> int:
    """Return a level at which one of the tensors is batched."""
    return next(
        k for k in range(1, _MOST_LEVELS) if any(_with_batch(each, k) is not None for each in tensors)
    )


def _batch(values: tuple[Any, ...], level: int) -> Any:
    """Return the tensors of all elements as one batched tensor; other values are equal."""
    first = values[0]
    return torch._add_batch_dim(torch.stack(values), 0, level) if isinstance(first, torch.Tensor) else first
