"""Helpers that schedule the kernels of tests for the default chip, emit them, and return their tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from litz_codegen_triton.capabilities import DEFAULT_CHIP, chip_capabilities
from litz_codegen_triton.emit.kernel import emit_kernel
from litz_codegen_triton.emit.kernel_source import KernelSource
from litz_codegen_triton.emit.loops.dot_kernels import DotKernel, scheduled_roles
from litz_codegen_triton.emit.loops.tiles import Tiling, tiling
from litz_codegen_triton.emit.source.ops_table import Form
from litz_codegen_triton.schedule.kernel import schedule_kernel
from litz_codegen_triton.tables.hopper import HOPPER
from litz_codegen_triton.tune.candidate_configs import candidates
from litz_ir.plan import Kernel, KernelOrigin, TileRequest, schedules_of, with_schedules

MACHINE = chip_capabilities(DEFAULT_CHIP)


def requested(kernel: Kernel) -> Kernel:
    """Return the kernel with empty schedule requests, its own and its subkernels'."""
    return with_schedules(kernel, [TileRequest()] * len(schedules_of(kernel)))


def scheduled(kernel: Kernel) -> Kernel:
    """Return the kernel with a schedule instead of its request."""
    return schedule_kernel(kernel, MACHINE)


def emitted(kernel: Kernel, *, form: Form = "compiled", origins: Sequence[KernelOrigin] = ()) -> KernelSource:
    """Return the source of the kernel, which is scheduled first."""
    return emit_kernel(scheduled(kernel), form=form, origins=origins)


def tiled(kernel: Kernel) -> Tiling:
    """Return the tiles of the kernel, which is scheduled first."""
    return tiling(scheduled(kernel))


def roles(kernel: Kernel) -> DotKernel | None:
    """Return the roles of a matmul or attention, which is scheduled first; ``None`` for other kernels."""
    return scheduled_roles(scheduled(kernel))


def subkernel_tiles(kernel: Kernel) -> list[Tiling]:
    """Return the tiles of each subkernel of a foreach kernel."""
    return [tiling(subkernel.kernel) for subkernel in scheduled(kernel).subkernels]


def choices(
    kernel: Kernel, shared_bytes: int = HOPPER.tuning.attention_shared_bytes, *, described: bool = False
) -> tuple[Kernel, ...]:
    """The kernel and its candidates, for a chip with ``shared_bytes``, and tensor descriptors where ``described``."""
    model = replace(MACHINE.model, shared_bytes=shared_bytes, tensor_descriptors=described)
    return candidates(scheduled(kernel), replace(MACHINE, model=model))
