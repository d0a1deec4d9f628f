"""Tensors over the memory of other tensors, and copies with the same layout."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from litz.host.runtime.torch_memory import own


def handed_out(results: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Return new tensors over the memory of results, which autograd does not treat as views.

    A training graph returns hundreds of them, and ``data`` makes one fastest. In inference mode they are inference
    tensors, as in eager.
    """
    if torch.is_inference_mode_enabled():
        return [None if each is None else own(each) for each in results]
    return [None if each is None else each.data for each in results]


def shifted(result: Tensor, base: Tensor, start: int) -> Tensor:
    """Return a result in the memory of ``base``, whose storage offset was ``start`` in the capture."""
    distance = (base.storage_offset() - start) * base.itemsize
    offset = result.storage_offset() + distance // result.itemsize
    if result.dtype == base.dtype:
        return base.as_strided(result.shape, result.stride(), offset)
    return _over(base.untyped_storage(), result, offset)


def copied(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return copies of tensors of one storage, again in one storage and with the same layout."""
    if len(tensors) == 1 and tensors[0].is_contiguous() and not tensors[0].is_conj():
        return [tensors[0].clone()]
    if len(tensors) == 1:
        made = like(tensors[0])
        fill([made], tensors)
        return [made]
    first = tensors[0]
    memory = torch.empty(0, dtype=torch.uint8, device=first.device).set_(first.untyped_storage()).clone()
    return [_over(memory.untyped_storage(), each, each.storage_offset()) for each in tensors]


def _over(storage: torch.UntypedStorage, tensor: Tensor, offset: int | torch.SymInt) -> Tensor:
    """Return a tensor like another one over ``storage``, starting at element ``offset``."""
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    made.set_(storage, offset, tensor.shape, tensor.stride())
    if tensor.is_conj():
        torch._C._set_conj(made, True)
    return made


def like(tensor: Tensor) -> Tensor:
    """Return memory of the same sizes and strides; elements that share memory share it there too."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def _compact(tensor: Tensor) -> Tensor:
    """Return the elements of a tensor that have memory of their own.

    Elements repeated along a dimension of stride 0 occur once. Where dimensions overlap otherwise, the result is all
    memory from the first to the last element.
    """
    if tensor.is_contiguous():
        return tensor
    sizes = [
        1 if step == 0 and size else size for size, step in zip(tensor.shape, tensor.stride(), strict=True)
    ]
    reach = 1
    for step, size in sorted(zip(tensor.stride(), sizes, strict=True)):
        if size > 1 and step < reach:
            ends = [(n - 1) * stride for n, stride in zip(sizes, tensor.stride(), strict=True)]
            return tensor.as_strided((1 + sum(ends),), (1,))
        reach += (size - 1) * step
    return tensor if 0 not in tensor.stride() else tensor.as_strided(sizes, tensor.stride())


def fill(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy elements between tensors of the same sizes and strides, pair by pair."""
    if any(each.is_conj() for each in targets):
        for target, source in zip(targets, sources, strict=True):
            _compact(target).copy_(_compact(source))
    elif targets:
        torch._foreach_copy_(list(map(_compact, targets)), list(map(_compact, sources)))
