"""Tensors over the memory of others, and copies that lie in memory as those do."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from litz.host.torch_memory import own


def handed_out(results: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Other tensors over the memory of results, which autograd does not know for views.

    A graph of training returns hundreds of them, and ``data`` is the quickest way to make one. In inference mode the
    others make inference tensors, as eager does.
    """
    if torch.is_inference_mode_enabled():
        return [None if each is None else own(each) for each in results]
    return [None if each is None else each.data for each in results]


def shifted(result: Tensor, base: Tensor, start: int) -> Tensor:
    """A result in the memory of ``base``, that was recorded when ``base`` began at its element ``start``."""
    apart = (base.storage_offset() - start) * base.itemsize
    offset = result.storage_offset() + apart // result.itemsize
    if result.dtype == base.dtype:
        return base.as_strided(result.shape, result.stride(), offset)
    return _over(base.untyped_storage(), result, offset)


def copied(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copies of tensors that lie in one storage, which lie in one as they do."""
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
    """A tensor like another one over ``storage``, from its element ``offset`` on."""
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    made.set_(storage, offset, tensor.shape, tensor.stride())
    if tensor.is_conj():
        torch._C._set_conj(made, True)
    return made


def like(tensor: Tensor) -> Tensor:
    """Memory for a tensor of the same sizes and strides; what repeats in memory repeats there."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def compact(tensor: Tensor) -> Tensor:
    """The elements of a tensor that have a place of their own: those that repeat along a dimension once, and all that
    lies between the first and the last where dimensions overlap otherwise."""
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
            compact(target).copy_(compact(source))
    elif targets:
        torch._foreach_copy_(list(map(compact, targets)), list(map(compact, sources)))
