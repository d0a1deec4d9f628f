"""Capabilities of this machine's CPU, read from the operating system."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from litz_ir.device import CPU
from litz_ir.target import Capabilities, DeviceModel

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
"""The folder in which Linux describes the caches of the first CPU."""
_SCRATCH_BYTES = 256 << 10
"""The most scratch of an outer point, in bytes; half of the L2 cache where that is less."""
_MAX_STATEMENTS = 400
"""The most statements of a fused kernel, which bounds compile time."""
_FLOPS_PER_LANE = 2.0 * 2.5e9
"""Operations per second of one 32-bit lane: an assumed fused multiply-add per cycle at 2.5 GHz."""
_MEMORY_RATE_PER_THREAD = 12e9
"""Assumed sustained bytes per second that one core moves; all cores of a socket move at most :data:`_MEMORY_RATE`."""
_MEMORY_RATE = 100e9
"""Assumed sustained bytes per second that a socket moves."""
PANEL_VECTORS = 2
"""Vectors of f32 in a row of a panel of prepacked weights, as in ``tiles.h``."""
LAUNCH_SECONDS = 2e-6
"""Estimated seconds to launch a kernel on one thread."""
PARALLEL_LAUNCH_SECONDS = 4e-6
"""Estimated seconds to launch a kernel on several threads."""

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def thread_count() -> int:
    """Return the number of CPUs that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cache_sizes(folder: Path = CACHES) -> dict[int, int]:
    """Return the bytes of the data caches by level; empty where the system does not list them."""
    found: dict[int, int] = {}
    for index in sorted(folder.glob("index*")):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        if kind != "Instruction" and size:
            found[int(level)] = int(size.rstrip("KMG")) * _UNITS.get(size[-1], 1)
    return found


def cpu_capabilities(name: str, vector_bytes: int, threads: int) -> Capabilities:
    """Return the capabilities of a CPU, for kernels of up to ``threads`` threads.

    ``name`` is the name of its instruction set, ``vector_bytes`` the size of its vector registers.
    """
    model = cpu_model(vector_bytes, threads)
    return Capabilities(
        name=name,
        device=CPU,
        model=model,
        scratch_bytes=min(_SCRATCH_BYTES, model.l2_bytes // 2),
        max_statements=_MAX_STATEMENTS,
        nested_reductions=True,
        blocked_attention=True,
        panel_columns=PANEL_VECTORS * vector_bytes // 4,
    )


@functools.cache
def cpu_model(vector_bytes: int, threads: int) -> DeviceModel:
    """Return the numbers of this machine's CPU; caches that the system does not list are a typical core's."""
    caches, typical = cache_sizes(), DeviceModel()
    return DeviceModel(
        threads=threads,
        vector_bytes=vector_bytes,
        l2_bytes=caches.get(2, typical.l2_bytes),
        memory_rate=min(_MEMORY_RATE, _MEMORY_RATE_PER_THREAD * threads),
        flop_rate=_FLOPS_PER_LANE * (vector_bytes // 4) * threads,
        launch_seconds=PARALLEL_LAUNCH_SECONDS if threads > 1 else LAUNCH_SECONDS,
    )
