"""Launches without effect on the program: they read the call's buffers and write to memory of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from litz.host.emit.launch_dependencies import may_fail
from litz.tuning.launches import symbols_of
from litz_ir.plan import Kernel, ScanStore, Store, access_ranges, leaf_kernels
from litz_ir.scalar import Expr, Load, indirects_in, loads

ALIGNMENT = 256
"""Alignment of the memory that stands for a written buffer, in bytes, so that alignment does not change."""


def can_benchmark(kernel: Kernel) -> bool:
    """Report whether a kernel can run on zeroed outputs.

    It cannot where values that it reads from a buffer that it writes decide its addresses, or whether it fails.
    """
    return all(map(_can_benchmark_loop, leaf_kernels(kernel)))


def _can_benchmark_loop(kernel: Kernel) -> bool:
    # Subkernels do not touch the buffers that another one writes.
    """Report whether one subkernel can run on zeroed outputs."""
    if not may_fail(kernel):
        return True
    written = {parameter.name for parameter in kernel.parameters if parameter.access != "in"}
    return not any(load.buffer in written for load in _loads(kernel))


def _loads(kernel: Kernel) -> Iterator[Load]:
    """Yield the loads of a kernel, those of indices included."""
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
    """Return addresses for a benchmark launch, and the memory behind those that it writes.

    The memory must stay referenced while the launch runs. ``None`` where the written range of a buffer is unknown.
    """
    touched = access_ranges(kernel, symbols_of(kernel, symbols))
    buffers, memory = [], []
    for parameter, address in zip(kernel.parameters, addresses, strict=True):
        if parameter.access == "in":
            buffers.append(address)
            continue
        low, high = touched[parameter.name].low, touched[parameter.name].high
        if low is None or high is None:
            return None
        start = low * parameter.dtype.itemsize // ALIGNMENT * ALIGNMENT
        end = (high + 1) * parameter.dtype.itemsize
        memory.append(torch.zeros(max(1, end - start), dtype=torch.uint8, device=device))
        buffers.append(memory[-1].data_ptr() - start)
    return buffers, memory
