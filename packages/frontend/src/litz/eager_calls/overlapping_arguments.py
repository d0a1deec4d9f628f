"""Arguments that share memory in another way than those that a graph was traced with.

Where a graph overwrites an argument, AOTAutograd traces how its arguments share storages, and no guard checks that in
later calls. Those run as the captured graph, in eager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import add, le
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
    call: Callable[..., Any],
    gm: GraphModule,
    inputs: Sequence[Any],
    positions: Sequence[int],
    *,
    guarded: bool,
) -> Callable[..., Any]:
    """Return ``call`` for arguments that share memory as ``inputs`` do, and the captured graph ``gm`` for others.

    Compared are the tensors at ``positions`` that are of torch's own classes. ``guarded``: guards compare sizes and
    strides, which are the same in all calls unless there are symbols among ``inputs``.
    """
    checked = [k for k in positions if _has_memory(inputs[k])]
    if len(checked) < 2:
        return call
    tensors = [inputs[k] for k in checked]
    extents = [_extent(tensor) for tensor in tensors]
    # AOTAutograd knows of tensors in one storage alone.
    storages = [tensor.untyped_storage()._cdata for tensor in tensors]
    overlaps = _overlaps(_addresses(tensors), extents)
    traced = tuple(pair for pair in overlaps if storages[pair[0]] == storages[pair[1]])
    dynamic = not guarded or not all(isinstance(value, torch.Tensor) for value in inputs)
    eager: Callable[..., Any] = disable(gm, reason="it runs in eager")
    # An optimizer passes the same tensors at each step.
    valid: list[int] | None = None

    def run(*args: Any) -> Any:
        nonlocal valid
        given = [args[k] for k in checked]
        addresses = _addresses(given)
        if addresses == valid:
            return call(*args)
        if _overlaps(addresses, [_extent(tensor) for tensor in given] if dynamic else extents) == traced:
            valid = None if dynamic else addresses
            return call(*args)
        log_once(_LINE)
        return eager(*args)

    return run


def _addresses(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Return the address of each tensor's first element."""
    return [tensor.data_ptr() for tensor in tensors]


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


def _overlaps(addresses: Sequence[int], extents: Sequence[int]) -> tuple[_Overlap, ...]:
    """Return the pairs of tensors whose ranges of memory, by address and bytes, overlap."""
    ranges = sorted(zip(addresses, range(len(addresses)), extents, strict=True))
    starts, _, sizes = zip(*ranges, strict=True)
    if all(map(le, map(add, starts, sizes), starts[1:])):
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
