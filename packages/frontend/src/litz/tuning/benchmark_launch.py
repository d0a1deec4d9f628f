"""A launch that nobody sees: it reads what the real one reads, and writes to memory of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from litz.host.launch_dependencies import may_fail
from litz.tuning.launches import symbols_of
from litz_ir.plan import Kernel, ScanStore, Store, access_ranges, leaf_kernels
from litz_ir.scalar import Expr, Load, indirects_in, loads

ALIGNMENT = 256
"""Bytes to a multiple of which a buffer is moved, so that what is aligned stays so."""


def can_benchmark(kernel: Kernel) -> bool:
    """False where what is in the memory that a kernel writes may decide where it reads and writes, or whether it
    fails: in a trial nothing is there."""
    return all(map(_loop_can_be_tried, leaf_kernels(kernel)))


def _loop_can_be_tried(kernel: Kernel) -> bool:
    # What a loop of a pack writes no other one touches.
    if not may_fail(kernel):
        return True
    written = {parameter.name for parameter in kernel.parameters if parameter.access != "in"}
    return not any(load.buffer in written for load in _loads(kernel))


def _loads(kernel: Kernel) -> Iterator[Load]:
    values: tuple[Expr, ...]
    for statement in (statement for phase in kernel.phases for statement in phase.statements):
        match statement:
            case Store():
                values, offsets = (statement.value,), [statement.offset]
            case ScanStore():
                values, offsets = statement.values, [offset for _, offset in statement.targets]
            case _:
                values, offsets = statement.values, []
        yield from loads(*values, *(atom.value for offset in offsets for atom in indirects_in(offset)))


def benchmark_buffers(
    kernel: Kernel, addresses: Sequence[int], symbols: Sequence[int | float], device: torch.device
) -> tuple[list[int], list[torch.Tensor]] | None:
    """The addresses for a trial of a launch, and the memory behind those that it writes, which must be kept while it
    runs; ``None`` where nobody knows how much it writes."""
    touched = access_ranges(kernel, symbols_of(kernel, symbols))
    places, memory = [], []
    for parameter, address in zip(kernel.parameters, addresses, strict=True):
        if parameter.access == "in":
            places.append(address)
            continue
        low, high = touched[parameter.name].low, touched[parameter.name].high
        if low is None or high is None:
            return None
        start = low * parameter.dtype.itemsize // ALIGNMENT * ALIGNMENT
        end = (high + 1) * parameter.dtype.itemsize
        memory.append(torch.zeros(max(1, end - start), dtype=torch.uint8, device=device))
        places.append(memory[-1].data_ptr() - start)
    return places, memory
