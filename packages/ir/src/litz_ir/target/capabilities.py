"""Capabilities of a device, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from litz_ir.device import CPU, Device
from litz_ir.dtypes import ALL, DType
from litz_ir.target.device_model import DeviceModel


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Facts about a device, and about its target's kernels, that passes may test; they never test names."""

    name: str
    """Name for reports and cache keys (``"avx512"``, ``"sm_90"``)."""
    device: Device = CPU
    """Kind of device."""
    model: DeviceModel = field(default_factory=DeviceModel)
    """Numbers of the machine."""
    scratch_bytes: int = 0
    """Most bytes of scratch arrays for one outer point; 0 for a target without scratch arrays."""
    max_tile_elements: int = 0
    """Most elements of a thread block's tile; 0 for a target without tiles."""
    max_statements: int = 512
    """Most statements that are emitted for one kernel body, which bounds compile time."""
    forward_progress: bool = False
    """True if a thread block may wait for another one that has started, as a look-back scan does."""
    graph_capture: bool = False
    """True if launches can be captured, and replayed by one call of the host, as CUDA graphs are."""
    max_subkernels: int = 1
    """Most invocations of a horizontally fused kernel; 1 for a target without horizontal fusion."""
    dtypes: frozenset[DType] = frozenset(ALL)
    """Dtypes that kernels can load, store and compute with."""
    atomics: frozenset[DType] = frozenset()
    """Dtypes of which a combining store may be atomic."""
    operations: frozenset[str] | None = None
    """Scalar operations that kernels compute, names of ``litz_ir.scalar.OPS``; ``None`` for all of them."""
    combiners: frozenset[str] | None = None
    """Kinds of reductions that kernels combine by, names of ``litz_ir.loops.REDUCTION_KINDS``, and ``user`` for
    combiners given by expressions; ``None`` for all of them."""
    index_bits: int = 64
    """Bits of the integers that kernels index memory and count loops with: 64 or 32."""
    fp8_matmul: bool = False
    """True if the device multiplies 8-bit floats at its own precision (``mul_f8``)."""
    nested_reductions: bool = False
    """True if bodies may contain nested reductions."""
    max_sorted_row: int = 0
    """Longest row that a scan may sort; 0 for a target without sorting scans."""

    def computes(self, operation: str) -> bool:
        """Return whether kernels compute a scalar operation."""
        return self.operations is None or operation in self.operations

    def combines(self, combiner: str) -> bool:
        """Return whether kernels combine by a kind of reductions, or by ``user`` combiners."""
        return self.combiners is None or combiner in self.combiners

    @property
    def is_gpu(self) -> bool:
        """True for a device whose kernels run as thread blocks on SMs."""
        return self.model.sm_count > 0
