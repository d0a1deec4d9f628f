"""Capabilities of a device, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from litz_ir.device import CPU, Device
from litz_ir.dtypes import ALL, DType


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Facts about a device that passes may test; they never test names."""

    name: str
    """Name for reports and cache keys (``"avx512"``, ``"sm_90"``)."""
    device: Device = CPU
    """Kind of device."""
    vector_bytes: int = 0
    """Bytes of a vector register; 0 for a device without."""
    threads: int = 1
    """CPU threads that one kernel may use."""
    sm_count: int = 0
    """Streaming multiprocessors of a GPU; 0 for other devices."""
    l1_bytes: int = 32 << 10
    """Bytes of L1 cache of a core or SM; the default is a typical x86 core's."""
    l2_bytes: int = 1 << 20
    """Bytes of L2 cache: of a CPU core, or of a GPU in total."""
    l3_bytes: int = 16 << 20
    """Bytes of L3 cache of a core."""
    memory_rate: float = 20e9
    """Memory bandwidth in bytes per second; the default is a cautious guess for a CPU."""
    flop_rate: float = 100e9
    """Floating-point operations per second; the default is a cautious guess for a CPU."""
    scratch_bytes: int = 0
    """Most bytes of scratch arrays for one outer point; 0 for a target without scratch arrays."""
    max_tile_elements: int = 0
    """Most elements of a thread block's tile; 0 for a target without tiles."""
    max_statements: int = 512
    """Most statements that are emitted for one kernel body, which bounds compile time."""
    max_cluster_size: int = 1
    """Most thread blocks that are guaranteed to run at the same time, so that they may use a cluster barrier."""
    forward_progress: bool = False
    """True if a thread block may wait for another one that has started, as a look-back scan does."""
    max_subkernels: int = 1
    """Most invocations of a horizontally fused kernel; 1 for a target without horizontal fusion."""
    dtypes: frozenset[DType] = frozenset(ALL)
    """Dtypes that kernels can load, store and compute with."""
    atomics: frozenset[DType] = frozenset()
    """Dtypes of which a combining store may be atomic."""
    contraction_templates: frozenset[str] = frozenset()
    """Kinds of contractions that the code generator writes itself."""
    fp8_matmul: bool = False
    """True if the device multiplies 8-bit floats at its own precision (``mul_f8``)."""
    nested_reductions: bool = False
    """True if bodies may contain nested reductions."""
    max_sorted_row: int = 0
    """Longest row that a scan may sort; 0 for a target without sorting scans."""
