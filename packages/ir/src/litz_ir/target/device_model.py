"""The numbers of a machine, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from litz_ir.target.field_checks import Check, at_least, check_fields, finite, flag, power_of_two


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceModel:
    """Counts, sizes and rates of a machine, which its target states once and every pass reads.

    A field that concerns GPUs alone is 0, 1 or False by default. Thresholds of heuristics, which follow from
    measurements of kernels, stand where they are used.
    """

    threads: int = 1
    """CPU threads that one kernel may use. Source: the process's CPU affinity."""

    vector_bytes: int = 0
    """Most bytes that one instruction of a thread loads: a vector register of a CPU (source: its instruction set), the
    widest access of a GPU's thread (NVIDIA: CUDA C++ Programming Guide, device memory accesses); 0 without vectors."""

    l2_bytes: int = 1 << 20
    """Bytes of L2 cache: of a CPU core, or of a GPU in total. Source: Linux's list of caches, NVIDIA's data sheets; the
    default is a typical x86 core's."""

    line_bytes: int = 64
    """Bytes of a cache line. Source: the default is that of x86 and most Arm cores; NVIDIA's best practices guide."""

    sector_bytes: int = 0
    """Bytes of the sectors of a line, the smallest unit of DRAM traffic of a GPU. Source: NVIDIA's profiling guide."""

    memory_rate: float = 20e9
    """Memory bandwidth in bytes per second. Source: data sheets for GPUs; a guess for CPUs, cautious by default."""

    flop_rate: float = 100e9
    """``f32`` operations per second without matrix units. Source: data sheets for GPUs; a guess for CPUs, cautious by
    default."""

    matrix_rate: float = 0
    """Operations per second of matrix units on ``bf16`` operands, without sparsity; 0 without such units. Source: data
    sheets."""

    launch_seconds: float = 2e-6
    """Seconds that one launch of a kernel costs. Source: estimates of the targets."""

    sm_count: int = 0
    """Streaming multiprocessors of a GPU; 0 for other devices. Source: data sheets."""

    warp_size: int = 1
    """Threads that execute one instruction together. Source: CUDA C++ Programming Guide."""

    max_threads: int = 1
    """Most threads of a thread block. Source: CUDA C++ Programming Guide, technical specifications."""

    registers: int = 0
    """32-bit registers that a thread block can have. Source: likewise."""

    thread_registers: int = 0
    """32-bit registers that a thread can have. Source: likewise."""

    shared_bytes: int = 0
    """Bytes of shared memory that a thread block can have. Source: likewise."""

    static_shared_bytes: int = 0
    """Bytes of shared memory that a kernel can have without asking the driver for more. Source: likewise."""

    max_cluster_size: int = 1
    """Most thread blocks that are guaranteed to run at the same time, so that they may use a cluster barrier. Source:
    CUDA C++ Programming Guide, thread block clusters."""

    tensor_descriptors: bool = False
    """True where a unit of the device copies the tiles that tensor descriptors describe (NVIDIA's TMA). Source:
    CUDA C++ Programming Guide, asynchronous data copies."""

    descriptor_alignment: int = 0
    """Bytes of which the address and the rows' stride of a matrix with a tensor descriptor are multiples. Source:
    ``cuTensorMapEncodeTiled`` of the CUDA driver API."""

    max_descriptor_block: int = 0
    """Most elements along a dimension of a tile that a tensor descriptor describes. Source: likewise."""

    def __post_init__(self) -> None:
        check_fields(self, _CHECKS)

    @property
    def max_warps(self) -> int:
        """Most warps of a thread block."""
        return self.max_threads // self.warp_size

    @property
    def full_register_warps(self) -> int:
        """Most warps of a thread block whose threads have ``thread_registers`` each, which are allocated in eights."""
        return self.registers // (self.warp_size * -(-self.thread_registers // 8) * 8)


_CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "threads": at_least(1),
        "vector_bytes": power_of_two(or_zero=True),
        "l2_bytes": at_least(0),
        "line_bytes": power_of_two(),
        "sector_bytes": power_of_two(or_zero=True),
        "memory_rate": finite(),
        "flop_rate": finite(),
        "matrix_rate": finite(or_zero=True),
        "launch_seconds": finite(or_zero=True),
        "sm_count": at_least(0),
        "warp_size": power_of_two(),
        "max_threads": at_least(1),
        "registers": at_least(0),
        "thread_registers": at_least(0),
        "shared_bytes": at_least(0),
        "static_shared_bytes": at_least(0),
        "max_cluster_size": at_least(1),
        "tensor_descriptors": flag(),
        "descriptor_alignment": at_least(0),
        "max_descriptor_block": at_least(0),
    }
)
"""The check of each field."""
