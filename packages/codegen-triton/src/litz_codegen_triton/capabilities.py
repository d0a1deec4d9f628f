"""Capabilities of NVIDIA GPUs, by compute capability."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from litz_ir.device import Device
from litz_ir.dtypes import ALL, f8e4m3fnuz, f8e5m2fnuz
from litz_ir.errors import TargetError
from litz_ir.target import Capabilities

CUDA = Device("cuda")


@dataclass(frozen=True, slots=True)
class _Chip:
    """Published figures of the largest GPU with a compute capability."""

    sm_count: int
    """Streaming multiprocessors."""

    l2_bytes: int
    """Bytes of the L2 cache."""

    memory_rate: float
    """Bandwidth of device memory in bytes per second."""

    flop_rate: float
    """``f32`` operations per second without tensor cores."""

    shared_bytes: int
    """Bytes of shared memory that a thread block can have."""

    max_cluster_size: int = 1
    """Most thread blocks of a cluster; 1 where the chip has no clusters."""

    f8: bool = False
    """True where tensor cores multiply 8-bit floats."""


_CHIPS: Mapping[str, _Chip] = MappingProxyType(
    {
        "sm_80": _Chip(108, 40 << 20, 2.0e12, 19.5e12, 163 << 10),
        "sm_86": _Chip(84, 6 << 20, 0.77e12, 35e12, 99 << 10),
        "sm_89": _Chip(128, 72 << 20, 1.0e12, 82e12, 99 << 10, f8=True),
        "sm_90": _Chip(132, 50 << 20, 4.8e12, 67e12, 227 << 10, 8, True),
        "sm_100": _Chip(148, 126 << 20, 8.0e12, 75e12, 227 << 10, 8, True),
    }
)

SORTED_ROW = 2048
"""Most keys of a sorted row, all of which are in registers. With 8 keys a thread, 64 registers and 16 KB of shared
memory suffice on every chip; a row twice as long takes ten seconds to compile."""

DEFAULT_CHIP = "sm_90"
"""Chip that kernels are compiled for on a machine without a GPU."""

MAX_SUBKERNELS = 64
"""Most subkernels of a foreach kernel. A thread block finds its own by binary search, with one comparison for each bit
of this number."""


def shared_memory_limit(chip: str) -> int:
    """Return the bytes of shared memory that a thread block can have. Raises ``TargetError`` naming the known chips."""
    return _known(chip).shared_bytes


def chip_capabilities(chip: str) -> Capabilities:
    """Return the capabilities of a chip, such as ``sm_90``. Raises ``TargetError`` naming the known chips.

    ``scratch_bytes`` is 0: a Triton kernel has tiles in registers and no scratch arrays, so the scheduler recomputes
    values instead. ``threads`` is 1: the unit of work is the thread block. ``forward_progress`` holds: a thread block
    that has started stays on its SM until it ends and all of its threads advance, so another block may wait for it.
    """
    found = _known(chip)
    return Capabilities(
        name=chip,
        device=CUDA,
        vector_bytes=16,
        threads=1,
        sm_count=found.sm_count,
        l1_bytes=228 << 10,
        l2_bytes=found.l2_bytes,
        l3_bytes=0,
        memory_rate=found.memory_rate,
        flop_rate=found.flop_rate,
        scratch_bytes=0,
        max_tile_elements=32768,
        max_statements=512,
        max_cluster_size=found.max_cluster_size,
        forward_progress=True,
        dtypes=frozenset(ALL) - {f8e4m3fnuz, f8e5m2fnuz},
        atomics=frozenset(ALL) - {f8e4m3fnuz, f8e5m2fnuz},
        fp8_matmul=found.f8,
        nested_reductions=True,
        max_sorted_row=SORTED_ROW,
        max_subkernels=MAX_SUBKERNELS,
    )


def _known(chip: str) -> _Chip:
    found = _CHIPS.get(chip)
    if found is None:
        raise TargetError(f"no chip named {chip!r}", hint=f"one of {', '.join(_CHIPS)}")
    return found
