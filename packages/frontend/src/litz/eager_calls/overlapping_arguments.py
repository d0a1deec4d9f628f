"""Arguments that share memory in another way than those that a graph was traced with.

Where a graph overwrites an argument, AOTAutograd traces how its arguments share storages, and no guard checks that in
later calls. Those run as the captured graph, in eager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch._dynamo import disable
from torch.fx import GraphModule

from litz.notices import log_once

_Overlap = tuple[int, int, int]
"""Positions of two tensors that share memory, and the distance from the start of the first to that of the second, in
bytes."""

_LINE = (
    "litz: a call runs in eager: its arguments share memory in another way than those that the graph was compiled "
    "for, and the graph overwrites one of them. Pass copies, or compile a function for these arguments alone."
)


def with_overlap_guard(
    call: Callable[..., Any], gm: GraphModule, inputs: Sequence[Any], positions: Sequence[int]
) -> Callable[..., Any]:
    """Return ``call`` for arguments that share memory as ``inputs`` do, and the captured graph ``gm`` for others.

    Compared are the tensors at ``positions`` that are of torch's own classes.
    """
    checked = [k for k in positions if _has_memory(inputs[k])]
    if len(checked) < 2:
        return call
    tensors = [inputs[k] for k in checked]
    # AOTAutograd knows of tensors in one storage alone.
    storages = [tensor.untyped_storage()._cdata for tensor in tensors]
    traced = tuple(pair for pair in _overlaps(tensors) if storages[pair[0]] == storages[pair[1]])
    eager: Callable[..., Any] = disable(gm, reason="it runs in eager")

    def run(*args: Any) -> Any:
        if _overlaps([args[k] for k in checked]) == traced:
            return call(*args)
        log_once(_LINE)
        return eager(*args)

    return run


def _has_memory(value: object) -> bool:
    """Report whether a value is a strided tensor with an address."""
    plain = type(value) in (torch.Tensor, torch.nn.Parameter)
    return (
        plain
        and isinstance(value, torch.Tensor)
        and value.layout == torch.strided
        and not torch._C._functorch.is_functorch_wrapped_tensor(value)
        and value.device.type != "meta"
    )


def _overlaps(tensors: Sequence[torch.Tensor]) -> tuple[_Overlap, ...]:
    """Return the pairs of tensors whose ranges of memory overlap."""
    ranges = sorted((tensor.data_ptr(), k, _extent(tensor)) for k, tensor in enumerate(tensors))
    if all(start + extent <= following for (start, _, extent), (following, _, _) in pairwise(ranges)):
        return ()
    pairs = (
        (a, b, other - start) if a < b else (b, a, start - other)
        for n, (start, a, extent) in enumerate(ranges)
        for other, b, size in ranges[n + 1 :]
        if other < start + extent and size
    )
    return tuple(sorted(pairs))


def _extent(tensor: torch.Tensor) -> int:
    """Return the number of bytes from the first element of a tensor to the end of its last one."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()
