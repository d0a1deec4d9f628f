"""What NVIDIA's chips can do, as far as kernels made by Triton are concerned."""

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
    """SM count, L2 bytes, memory bytes per second and f32 operations per second of a chip's largest part; bytes of
    shared memory that a program can have; the programs of a cluster, 1 where there are none; whether its tensor cores
    multiply 8-bit floats."""

    processors: int
    l2_bytes: int
    memory_rate: float
    flop_rate: float
    shared_bytes: int
    together: int = 1
    f8: bool = False


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
"""The longest row that is sorted, all of it in registers: with 8 keys a thread 64 registers and 16 KB of shared memory
do on every chip. Twice that compiles for ten seconds."""

DEFAULT_CHIP = "sm_90"

MAX_SUBKERNELS = 64
"""The loops of a pack: a program makes as many comparisons to find its own as this has bits."""


def shared_memory_limit(chip: str) -> int:
    """The bytes of shared memory that a program of a chip can have; raises ``TargetError`` naming the known chips."""
    return _known(chip).shared_bytes


def chip_capabilities(chip: str) -> Capabilities:
    """The capabilities of a chip by its name; raises ``TargetError`` naming the known ones.

    Local arrays are none, so that the scheduler recomputes what it would keep in one: in a Triton kernel what is kept
    are tiles in registers. There is one thread per launch, the block its unit of work. A program that has begun keeps
    its place on a processor until it ends, and all its threads go on, so that another may wait for it.
    """
    found = _known(chip)
    return Capabilities(
        name=chip,
        device=CUDA,
        vector_bytes=16,
        threads=1,
        sm_count=found.processors,
        l1_bytes=228 << 10,
        l2_bytes=found.l2_bytes,
        l3_bytes=0,
        memory_rate=found.memory_rate,
        flop_rate=found.flop_rate,
        scratch_bytes=0,
        max_tile_elements=32768,
        max_statements=512,
        max_cluster_size=found.together,
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
