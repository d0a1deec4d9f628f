"""Memory as torch tensors. The one module that touches a private torch helper, with a public way beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def strided(base: torch.Tensor, shape: Sequence[int], strides: Sequence[int], offset: int) -> torch.Tensor:
    """A view of ``base``'s memory; ``offset`` is in elements of ``base`` from its own first element."""
    return base.as_strided(shape, strides, base.storage_offset() + offset)


def view(
    storage: torch.Tensor, dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int]
) -> torch.Tensor:
    """A tensor over the start of a byte storage."""
    return storage.view(dtype).as_strided(shape, strides)


def promised(value: Any, shape: Sequence[int], strides: Sequence[int], operator: str) -> Any:
    """What an operator returned, with the strides that its meta kernel promised: a copy where it has others.

    Raises ``RuntimeError`` when it has another shape. What is no tensor is given back.
    """
    if not isinstance(value, torch.Tensor) or (value.stride() == strides and value.shape == shape):
        return value
    if value.shape != shape:
        raise RuntimeError(
            f"{operator} returned a tensor of shape {tuple(value.shape)}, its meta kernel said {tuple(shape)}: "
            "correct the function given to register_fake"
        )
    if all(size == 1 or a == b for size, a, b in zip(shape, value.stride(), strides)) or 0 in shape:
        return value
    return torch.empty_strided(shape, strides, dtype=value.dtype, device=value.device).copy_(value)


class TorchTensors:
    """What control flow itself does with tensors."""

    def stack(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Equally shaped tensors along a new first dimension, contiguous."""
        return torch.stack(list(tensors))

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same elements and strides in memory of their own."""
        return tensor.clone()


def _public_empty(
    shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: str = "cpu"
) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype, device=device)


def _quick_empty() -> Callable[..., torch.Tensor]:
    """Dynamo's guards module allocates without parsing keyword arguments, which saves a microsecond a tensor."""
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    found: Any = getattr(guards, "_empty_strided_cpu", None)
    if found is None:
        return _public_empty

    def quick(
        shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: str = "cpu"
    ) -> torch.Tensor:
        if device != "cpu":
            return _public_empty(shape, strides, dtype, device)
        return found(shape, strides, dtype)  # type: ignore[no-any-return]  # a C function

    return quick


empty = _quick_empty()
