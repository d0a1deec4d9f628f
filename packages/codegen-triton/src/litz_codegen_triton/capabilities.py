"""Capabilities of NVIDIA GPUs, by compute capability."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from litz_codegen_triton.dtypes import SUPPORTED
from litz_codegen_triton.tables.routines import routines_of
from litz_ir.device import Device
from litz_ir.dtypes import DType, bf16, f16, f32
from litz_ir.errors import TargetError
from litz_ir.target import Capabilities, DeviceModel

__all__ = ["COPY_KINDS", "CUDA", "NVIDIA", "chip_capabilities", "chip_model"]

CUDA = Device("cuda")
"""NVIDIA GPUs, as torch names them."""

NVIDIA = DeviceModel(
    vector_bytes=16,
    line_bytes=128,
    sector_bytes=32,
    launch_seconds=4e-6,
    warp_size=32,
    max_threads=1024,
    registers=64 << 10,
    thread_registers=255,
    static_shared_bytes=48 << 10,
    descriptor_alignment=16,
    max_descriptor_block=256,
)
"""Numbers that all NVIDIA GPUs have in common."""

_CHIPS: Mapping[str, DeviceModel] = MappingProxyType(
    {
        # A100 80GB
        "sm_80": replace(
            NVIDIA, sm_count=108, l2_bytes=40 << 20, memory_rate=2.0e12, flop_rate=19.5e12,
            matrix_rate=312e12, shared_bytes=163 << 10,
        ),
        # RTX A6000, with the rate of operations of an RTX 3090
        "sm_86": replace(
            NVIDIA, sm_count=84, l2_bytes=6 << 20, memory_rate=0.77e12, flop_rate=35e12,
            matrix_rate=155e12, shared_bytes=99 << 10,
        ),
        # RTX 4090
        "sm_89": replace(
            NVIDIA, sm_count=128, l2_bytes=72 << 20, memory_rate=1.0e12, flop_rate=82e12,
            matrix_rate=165e12, shared_bytes=99 << 10,
        ),
        # H200
        "sm_90": replace(
            NVIDIA, sm_count=132, l2_bytes=50 << 20, memory_rate=4.8e12, flop_rate=67e12,
            matrix_rate=989e12, shared_bytes=227 << 10, max_cluster_size=16, tensor_descriptors=True,
        ),
        # B200
        "sm_100": replace(
            NVIDIA, sm_count=148, l2_bytes=126 << 20, memory_rate=8.0e12, flop_rate=75e12,
            matrix_rate=2250e12, shared_bytes=227 << 10, max_cluster_size=16, tensor_descriptors=True,
        ),
    }
)  # fmt: skip
"""Published figures, rounded, of a large GPU with each compute capability."""

_FP8_CHIPS = frozenset({"sm_89", "sm_90", "sm_100"})
"""Chips whose tensor cores multiply 8-bit floats."""

SORTED_ROW = 512
"""Most keys of a sorted row, all of which are in registers. The library sorts longer rows faster."""

DEFAULT_CHIP = "sm_90"
"""Chip that kernels are compiled for on a machine without a GPU."""

_MAX_SUBKERNELS = 64
"""Most subkernels of a foreach kernel. A thread block finds its own by binary search, with one comparison for each bit
of this number."""


def chip_model(chip: str) -> DeviceModel:
    """Return the numbers of a chip, such as ``sm_90``. Raises ``TargetError`` naming the known chips."""
    found = _CHIPS.get(chip)
    if found is None:
        raise TargetError(f"no chip named {chip!r}", hint=f"one of {', '.join(_CHIPS)}")
    return found


COPY_KINDS: Mapping[tuple[DType, DType], int] = MappingProxyType(
    {
        (bf16, bf16): 0, (f16, f16): 0, (f32, f32): 1, (f32, bf16): 2, (f32, f16): 3,
    }
)  # fmt: skip
"""Number that the kernel ``litz_copy_again`` has for each pair of dtypes that it copies."""


def chip_capabilities(chip: str) -> Capabilities:
    """Return the capabilities of a chip, such as ``sm_90``. Raises ``TargetError`` naming the known chips.

    ``scratch_bytes`` is 0: a Triton kernel has tiles in registers and no scratch arrays, so the scheduler recomputes
    values instead. The model's ``threads`` is 1: the unit of work is the thread block. ``forward_progress`` holds: a
    thread block that has started stays on its SM until it ends and all of its threads advance, so another block may
    wait for it.
    """
    return Capabilities(
        name=chip,
        device=CUDA,
        model=chip_model(chip),
        scratch_bytes=0,
        max_tile_elements=32768,
        max_statements=512,
        forward_progress=True,
        graph_capture=True,
        dtypes=SUPPORTED,
        atomics=SUPPORTED,
        fp8_matmul=chip in _FP8_CHIPS,
        nested_reductions=True,
        max_sorted_row=SORTED_ROW,
        max_subkernels=_MAX_SUBKERNELS,
        copies=frozenset(COPY_KINDS),
        routines=routines_of(chip),
    )
