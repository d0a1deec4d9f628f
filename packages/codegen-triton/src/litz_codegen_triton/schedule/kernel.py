"""The choice of a kernel's form and schedule."""

from __future__ import annotations

from dataclasses import replace

from litz_codegen_triton.emit.loops.dot_kernels import dot_kernel
from litz_codegen_triton.emit.loops.fused_attention import FusedAttention
from litz_codegen_triton.schedule.attention import schedule_attention
from litz_codegen_triton.schedule.eviction import with_eviction
from litz_codegen_triton.schedule.foreach import schedule_foreach
from litz_codegen_triton.schedule.index_width import with_index_width
from litz_codegen_triton.schedule.lookback_scan import schedule_lookback_scan
from litz_codegen_triton.schedule.matmul import schedule_matmul
from litz_codegen_triton.schedule.prefetch import covered, with_next_tiles, with_prefetch
from litz_codegen_triton.schedule.request import check_request
from litz_codegen_triton.schedule.tile_loops import schedule_tile_loops
from litz_codegen_triton.tables import chip_of
from litz_ir.plan import GpuSchedule, Kernel, TileRequest
from litz_ir.symbols import SymbolTable
from litz_ir.target import Capabilities


def schedule_kernel(kernel: Kernel, capabilities: Capabilities) -> Kernel:
    """Replace a kernel's tile request with a schedule for a device; a kernel without a request is unchanged.

    Raises ``CodegenError`` when the request names a block that is not a power of two, or an axis that the kernel lacks.
    """
    request = kernel.schedule
    if not isinstance(request, TileRequest):
        return kernel
    if kernel.subkernels:
        return schedule_foreach(kernel, capabilities)
    return replace(kernel, schedule=_schedule(kernel, request, capabilities))


def _schedule(kernel: Kernel, request: TileRequest, capabilities: Capabilities) -> GpuSchedule:
    """Return the schedule of a kernel by its form, which is no matmul and no attention if a cluster is requested."""
    check_request(kernel, request)
    known = SymbolTable(kernel.symbols)
    chip = chip_of(capabilities)
    found = dot_kernel(kernel) if request.cluster == 1 else None
    if isinstance(found, FusedAttention):
        attention = schedule_attention(request, found, known, chip)
        attention = with_index_width(kernel, attention, found)
        return with_prefetch(kernel, attention, (found.phase,), chip)
    if found is not None:
        matmul = schedule_matmul(kernel, request, found, known, chip)
        return with_prefetch(kernel, matmul, (found.phase,), chip)
    if request.segment:
        return with_index_width(kernel, schedule_lookback_scan(request, chip.model))
    loops = with_eviction(kernel, schedule_tile_loops(kernel, request, chip))
    loops = with_next_tiles(kernel, with_prefetch(kernel, loops, covered(loops), chip), chip)
    return with_index_width(kernel, loops)
