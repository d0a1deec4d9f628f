"""Memory as torch tensors. Private helpers of torch that save time are used here alone, each with a public
substitute."""

from __future__ import annotations

import contextlib
import functools
import mmap
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from litz.devices import GPU, functions_of
from litz_ir.device import STORAGE_ALIGNMENT

_MAX_HEAP_BLOCK = (32 << 20) - (64 << 10)
"""Largest block that glibc allocates on its heap instead of by ``mmap``, in bytes, approximately."""


@functools.cache
def keep_freed_memory() -> None:
    """Make the C library keep freed memory for the next call, once a process: a block a graph would divide the heap,
    which then grew by megabytes with each.

    glibc returns freed blocks above a threshold to the system, and the end of its heap above twice that; allocating
    them again costs a page fault per 4 KB. Both thresholds rise to the largest block that was freed, up to this one,
    whose memory is never touched.
    """
    torch.UntypedStorage(_MAX_HEAP_BLOCK)


_HUGE_PAGE = 2 << 20
"""Bytes of a huge page of x86 and of most ARM systems."""

_LASTING_BLOCK = 16 << 20
"""Bytes of address space that lasting tensors share. Pages that no tensor touches take no memory."""

_LEAST_LASTING = 256 << 10
"""Fewest bytes of a tensor in huge pages; smaller ones have few pages anyway."""

_HUGE_PAGES = getattr(mmap, "MADV_HUGEPAGE", None)
"""Advice that asks Linux for huge pages; ``None`` elsewhere."""


class LastingMemory:
    """Memory of tensors that live from call to call, in huge pages where the system has them.

    A matmul that reads prepacked weights from memory waits for the translation of an address per 4 KB otherwise: with
    huge pages it is 3 to 7% faster (128 rows, AMD Zen 5). A block is freed with the last of its tensors.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._block: mmap.mmap | None = None
        self._end = 0
        self._next = 0

    def empty(self, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return a CPU tensor with unspecified elements."""
        count = (
            0
            if 0 in shape
            else 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        )
        size = count * dtype.itemsize
        if _HUGE_PAGES is None or size < _LEAST_LASTING:
            return empty(shape, strides, dtype)
        with self._lock:
            if self._block is None or self._next + size > self._end:
                self._start(size, _HUGE_PAGES)
            block, at = self._block, self._next
            self._next += -(-size // 64) * 64
        assert block is not None
        return torch.frombuffer(block, dtype=dtype, count=count, offset=at).as_strided(shape, strides)

    def _start(self, size: int, advice: int) -> None:
        """Start a block for a tensor of so many bytes, at the start of a huge page."""
        length = max(_LASTING_BLOCK, -(-size // _HUGE_PAGE) * _HUGE_PAGE)
        block = mmap.mmap(-1, length + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError):  # a kernel without them
            block.madvise(advice)
        start = torch.frombuffer(block, dtype=torch.uint8).data_ptr()
        self._next = -start % _HUGE_PAGE
        self._end = self._next + length
        self._block = block


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
    return strided_copy(tensor, tensor.stride())


def strided_copy(tensor: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """Return a copy with other strides, in a storage as a plan has it.

    Its bytes are rounded up, since a value with padding behind its last row may take the place of one without.
    """
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, strides, strict=True))
    nbytes = (last + 1) * tensor.itemsize if tensor.numel() else 0
    count = -(-nbytes // STORAGE_ALIGNMENT) * STORAGE_ALIGNMENT // tensor.itemsize
    whole = torch.empty(count, dtype=tensor.dtype, device=tensor.device)
    return whole.as_strided(tensor.shape, strides).copy_(tensor)


def view(
    storage: torch.Tensor, dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int]
) -> torch.Tensor:
    """Return a tensor over the start of a byte storage."""
    return storage.view(dtype).as_strided(shape, strides)


def alias_as(
    storage: torch.Tensor, dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int]
) -> torch.Tensor:
    """Return :func:`view`, made by :func:`alias`, so not to be returned to a caller as a view."""
    return alias(storage.view(dtype), shape, strides, 0)


def promised(
    value: Any,
    shape: Sequence[int],
    strides: Sequence[int],
    dtype: torch.dtype,
    operator: str,
    device: torch.device | None = None,
) -> Any:
    """Return an operator's result with memory and the strides of its meta kernel: a copy where it has others.

    Raises ``RuntimeError`` for another shape, dtype or layout, and for memory of another device than ``device``, where
    that is given. Values that are no tensors are returned unchanged.
    """
    if not isinstance(value, torch.Tensor):
        return value
    dense = value.layout == torch.strided and (device is None or _is_on(value, device))
    if value.shape != shape or value.dtype != dtype or not dense:
        layout = "" if value.layout == torch.strided else f"{value.layout}, "
        where = "" if device is None else f" on {device}"
        raise RuntimeError(
            f"{operator} returned a tensor of shape {tuple(value.shape)}, {layout}{value.dtype} on {value.device}, its "
            f"meta kernel said {tuple(shape)}, {dtype}{where}: correct the function given to register_fake"
        )
    value = materialised(value)
    each = zip(shape, value.stride(), strides, strict=True)
    if value.stride() == strides or all(size == 1 or a == b for size, a, b in each) or 0 in shape:
        return value
    return torch.empty_strided(shape, strides, dtype=dtype, device=value.device).copy_(value)


def _is_on(tensor: torch.Tensor, device: torch.device) -> bool:
    """Report whether a tensor is on a device; one without an ordinal is the current one of its kind."""
    if tensor.device.type != device.type or tensor.device.index is None:
        return tensor.device.type == device.type
    ordinal = functions_of(device.type).current() if device.index is None else device.index
    return tensor.device.index == ordinal


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


def materialised(tensor: torch.Tensor) -> torch.Tensor:
    """Return a zero tensor with memory, of the same strides and offset; any other tensor unchanged.

    Autograd represents gradients that it knows to be zero by tensors without memory, whose address is null.
    """
    if not tensor._is_zerotensor():
        return tensor
    offset = int(tensor.storage_offset())
    made = empty_at(tensor.shape, tensor.stride(), offset, tensor.dtype, tensor.device)
    torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(made.untyped_storage()).zero_()
    return made


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with memory, conjugate and negative bits resolved and its strides unchanged; mostly the tensor
    itself."""
    if tensor._is_zerotensor():
        return materialised(tensor)
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
lasting = LastingMemory()
