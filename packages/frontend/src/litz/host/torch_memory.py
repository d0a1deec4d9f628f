"""Memory as torch tensors. The one module that touches a private torch helper, with a public way beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

MAX_HEAP_BLOCK = (32 << 20) - (64 << 10)
"""About the largest block, in bytes, that glibc takes from its heap and not from the system."""


def keep_freed_memory() -> None:
    """Have the C library keep freed memory for the next call.

    glibc gives blocks above a threshold back to the system, and the end of its heap above twice that; who asks again
    pays a page fault per 4 KB. Both rise once the largest block that they can rise to is freed: this one, untouched.
    """
    torch.UntypedStorage(MAX_HEAP_BLOCK)


def strided(base: torch.Tensor, shape: Sequence[int], strides: Sequence[int], offset: int) -> torch.Tensor:
    """A view of ``base``'s memory; ``offset`` is in elements of ``base`` from its own first element."""
    return base.as_strided(shape, strides, base.storage_offset() + offset)


def _quick_alias() -> Callable[[torch.Tensor, Sequence[int], Sequence[int], int], torch.Tensor]:
    """:func:`strided` without torch's dispatcher, which saves a microsecond a tensor. Autograd does not know the result
    for a view: it is for what no caller gets."""
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    return getattr(guards, "_reinterpret_tensor", strided)


alias = _quick_alias()


def own(tensor: torch.Tensor) -> torch.Tensor:
    """Another tensor over the same memory, which autograd does not know for a view."""
    if alias is not strided:
        return alias(tensor, tensor.shape, tensor.stride(), 0)
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return made.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())


def empty_at(
    shape: Sequence[int], strides: Sequence[int], offset: int, dtype: torch.dtype, device: str | torch.device
) -> torch.Tensor:
    """A tensor that starts at element ``offset`` of its storage, which ends with its last element, and is no view."""
    reach = (
        0 if 0 in shape else 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    )
    storage = torch.empty(offset + reach, dtype=dtype, device=device).untyped_storage()
    return torch.empty(0, dtype=dtype, device=device).set_(storage, offset, shape, strides)


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements and strides in memory of their own."""
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor)


def view(
    storage: torch.Tensor, dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int]
) -> torch.Tensor:
    """A tensor over the start of a byte storage."""
    return storage.view(dtype).as_strided(shape, strides)


def promised(
    value: Any, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, operator: str
) -> Any:
    """What an operator returned, with the strides that its meta kernel promised: a copy where it has others.

    Raises ``RuntimeError`` when it has another shape or dtype. What is no tensor is given back.
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
    """What control flow itself does with tensors."""

    def stack(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Equally shaped tensors along a new first dimension, contiguous."""
        return torch.stack(list(tensors))

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same elements and strides in memory of their own."""
        return tensor.clone()


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with its conjugate and negative bits worked into its elements, its strides kept; most often itself."""
    if not (tensor.is_conj() or tensor.is_neg()) or tensor.numel() == 0:
        return tensor.resolve_conj().resolve_neg()
    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    whole = tensor.as_strided((reach,), (1,)).resolve_conj().resolve_neg()
    return whole.as_strided(tensor.shape, tensor.stride())


def pairs(tensor: torch.Tensor) -> torch.Tensor:
    """A complex tensor's memory as (real, imaginary) on a last dimension of two; a copy where a bit is set."""
    return torch.view_as_real(plain(tensor))


def settle(tensor: torch.Tensor, memory: torch.Tensor) -> None:
    """Give the caller's tensor what was written to its ``pairs``, where those are a copy."""
    if tensor.is_conj() or tensor.is_neg():
        tensor.copy_(torch.view_as_complex(memory))


def empty_on(device: str | torch.device) -> Callable[..., torch.Tensor]:
    """What allocates on a device, from a shape, strides and a dtype."""

    def empty(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty_strided(shape, strides, dtype=dtype, device=device)

    return empty


def _quick_empty(device: str) -> Callable[..., torch.Tensor]:
    """Dynamo's guards module allocates without parsing keyword arguments, which saves a microsecond a tensor."""
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    found: Callable[..., torch.Tensor] | None = getattr(guards, f"_empty_strided_{device}", None)
    return found if found is not None else empty_on(device)


empty = _quick_empty("cpu")
empty_cuda = _quick_empty("cuda")
