"""Kernels of the tests, scheduled for a chip and emitted, with the tiles that they come to."""

from __future__ import annotations

from collections.abc import Sequence

from litz_codegen_triton.capabilities import DEFAULT_CHIP, chip_capabilities
from litz_codegen_triton.emit.kernel import KernelSource, emit_kernel
from litz_codegen_triton.emit.ops_table import Form
from litz_codegen_triton.emit.tiles import Tiling, tiling
from litz_codegen_triton.schedule.kernel import schedule_kernel
from litz_codegen_triton.tune import SHARED_BYTES, candidates
from litz_ir.plan import Kernel, KernelOrigin, TileRequest, schedules_of, with_schedules

MACHINE = chip_capabilities(DEFAULT_CHIP)


def requested(kernel: Kernel) -> Kernel:
    """The kernel, and its subkernels, with nothing asked of their schedules."""
    return with_schedules(kernel, [TileRequest()] * len(schedules_of(kernel)))


def scheduled(kernel: Kernel) -> Kernel:
    """The kernel with a schedule in the place of its request."""
    return schedule_kernel(kernel, MACHINE)


def emitted(kernel: Kernel, *, form: Form = "compiled", origins: Sequence[KernelOrigin] = ()) -> KernelSource:
    """The kernel's source."""
    return emit_kernel(scheduled(kernel), form=form, origins=origins)


def tiled(kernel: Kernel) -> Tiling:
    """The kernel's tiles."""
    return tiling(scheduled(kernel))


def subkernel_tiles(kernel: Kernel) -> list[Tiling]:
    """The tiles of each subkernel of a foreach kernel."""
    return [tiling(part.kernel) for part in scheduled(kernel).subkernels]


def choices(
    kernel: Kernel, shared_bytes: int = SHARED_BYTES, *, described: bool = False
) -> tuple[Kernel, ...]:
    """The kernel and its candidates."""
    return candidates(scheduled(kernel), MACHINE, shared_bytes, has_tma=described)
