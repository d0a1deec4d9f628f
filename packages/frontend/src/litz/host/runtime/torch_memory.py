"""Memory as torch tensors. Private helpers of torch that save time are used here alone, each with a public
substitute."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from litz.devices import GPU

_MAX_HEAP_BLOCK = (32 << 20) - (64 << 10)
"""Largest block that glibc allocates on its heap instead of by ``mmap``, in bytes, approximately."""


def keep_freed_memory() -> None:
    """Make the C library keep freed memory for the next call.

    glibc returns freed blocks above a threshold to the system, and the end of its heap above twice that; allocating
    them again costs a page fault per 4 KB. Both thresholds rise to the largest block that was freed, up to this one,
    whose memory is never touched.
    """
    torch.UntypedStorage(_MAX_HEAP_BLOCK)


def strided(base: torch.Tensor, shape: Sequence[int], strides: Sequence[int], offset: int) -> torch.Tensor:
    """Return a view of ``base``'s memory; ``offset`` is in elements from the first element of ``base``."""
    return base.as_strided(shape, strides, base.storage_offset() + offset)


def _quick_alias() -> Callable[[torch.Tensor, Sequence[int], Sequence[int], int], torch.Tensor]:
    """Return :func:`strided` without torch's dispatcher, which saves a microsecond per tensor.

    Autograd does not treat the result as a view, so it must not be returned to a caller as one.
    """
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    return getattr(guards, "_reinterpret_tensor", strided)


alias = _quick_alias()


def own(tensor: torch.Tensor) -> torch.Tensor:
    """Return another tensor over the same memory, which autograd does not treat as a view."""
    if alias is not strided:
        return alias(tensor, tensor.shape, tensor.stride(), 0)
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return made.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())


def empty_at(
    shape: Sequence[int], strides: Sequence[int], offset: int, dtype: torch.dtype, device: str | torch.device
) -> torch.Tensor:
    """Return a tensor, not a view, that starts at element ``offset`` of a storage that ends with its last element."""
    reach = (
        0 if 0 in shape else 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    )
    storage = torch.empty(offset + reach, dtype=dtype, device=device).untyped_storage()
    return torch.empty(0, dtype=dtype, device=device).set_(storage, offset, shape, strides)


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy with the same strides."""
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor)


def view(
    storage: torch.Tensor, dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int]
) -> torch.Tensor:
    """Return a tensor over the start of a byte storage."""
    return storage.view(dtype).as_strided(shape, strides)


def promised(
    value: Any, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, operator: str
) -> Any:
    """Return an operator's result with the strides of its meta kernel: a copy where it has others.

    Raises ``RuntimeError`` for another shape or dtype. Values that are no tensors are returned unchanged.
    """
    if not isinstance(value, torch.Tensor):
        return value
    if value.shape != shape or value.dtype != dtype:
        raise RuntimeError(
            f"{operator} returned a tensor of shape {tuple(value.shape)} and {value.dtype}, its meta kernel said "
            f"{tuple(shape)} and {dtype}: correct the function given to register_fake"
        )
    each = zip(shape, value.stride(), strides, strict=True)
    if value.stride() == strides or all(size == 1 or a == b for size, a, b in each) or 0 in shape:
        return value
    return torch.empty_strided(shape, strides, dtype=dtype, device=value.device).copy_(value)


class TorchTensors:
    """Tensor operations of higher-order operators."""

    def stack(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return equally shaped tensors along a new first dimension, contiguous."""
        return torch.stack(list(tensors))

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy with the same strides."""
        return tensor.clone()

    def truth(self, value: torch.Tensor | bool | int | float) -> bool:
        """Return whether a tensor of one element or a number differs from zero; waits for a GPU's."""
        return bool(value)

    def rows(self, tensor: torch.Tensor) -> Sequence[torch.Tensor]:
        """Return views of the elements along the first dimension."""
        return tensor.unbind(0)


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with conjugate and negative bits resolved and its strides unchanged; mostly the tensor itself."""
    if not (tensor.is_conj() or tensor.is_neg()) or tensor.numel() == 0:
        return tensor.resolve_conj().resolve_neg()
    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    whole = tensor.as_strided((reach,), (1,)).resolve_conj().resolve_neg()
    return whole.as_strided(tensor.shape, tensor.stride())


def pairs(tensor: torch.Tensor) -> torch.Tensor:
    """Return a complex tensor's memory as (real, imaginary) on a last dimension of two; a copy where a bit is set."""
    return torch.view_as_real(plain(tensor))


def settle(tensor: torch.Tensor, memory: torch.Tensor) -> None:
    """Copy ``pairs`` that were overwritten back to the caller's tensor, where they are a copy."""
    if tensor.is_conj() or tensor.is_neg():
        tensor.copy_(torch.view_as_complex(memory))


@functools.cache
def empty_on(device: str | torch.device) -> Callable[..., torch.Tensor]:
    """Return an allocator for a device, called with shape, strides and dtype."""

    def empty(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty_strided(shape, strides, dtype=dtype, device=device)

    return empty


def _quick_empty(device: str) -> Callable[..., torch.Tensor]:
    """Return the allocator of Dynamo's guards module, which saves a microsecond per tensor, or its substitute."""
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    found: Callable[..., torch.Tensor] | None = getattr(guards, f"_empty_strided_{device}", None)
    return found if found is not None else empty_on(device)


empty = _quick_empty("cpu")
empty_cuda = _quick_empty(GPU)
