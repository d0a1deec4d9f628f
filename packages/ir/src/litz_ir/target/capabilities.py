"""What a device can do, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from litz_ir.device import CPU, Device
from litz_ir.dtypes import ALL, DType


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Facts that passes may test; they never test names.

    ``name`` is for people and cache keys (``"avx512"``, ``"sm_90"``). ``vector_bytes`` is the register width (0:
    none), ``threads`` the threads that one kernel may use, ``sm_count`` the SM count of a GPU; caches are bytes per
    core or SM, but ``l2_bytes`` of a GPU those that all SMs share; ``memory_rate`` and ``flop_rate`` are per second.
    ``scratch_bytes`` bounds scratch per outer point (0: no local arrays). ``max_tile_elements`` is the largest tile
    of a program (0: the device has no blocks). ``max_statements`` caps the emitted statements of one kernel body.
    ``max_cluster_size`` is how many programs can be promised to run at the same time, so that they may wait for one
    another; ``forward_progress``: a program may wait for another that has begun, since none that has begun stands
    still for ever. ``max_subkernels`` is how many loops a pack may have: one launch that runs them side by side (1:
    there are no packs). ``contraction_templates`` names the contractions that the code generator makes itself.
    ``fp8_matmul``: products of 8-bit floats are what the device multiplies at once, at its own precision
    (``mul_f8``). ``nested_reductions``: bodies may hold ``Fold`` and reductions be a ``softmax_sum``.
    ``max_sorted_row`` is the longest row that a scan may have in order; 0: scans sort none.
    """

    name: str
    device: Device = CPU
    vector_bytes: int = 0
    threads: int = 1
    sm_count: int = 0
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20
    l3_bytes: int = 16 << 20
    memory_rate: float = 20e9
    flop_rate: float = 100e9
    scratch_bytes: int = 0
    max_tile_elements: int = 0
    max_statements: int = 512
    max_cluster_size: int = 1
    forward_progress: bool = False
    max_subkernels: int = 1
    dtypes: frozenset[DType] = frozenset(ALL)
    atomics: frozenset[DType] = frozenset()
    contraction_templates: frozenset[str] = frozenset()
    fp8_matmul: bool = False
    nested_reductions: bool = False
    max_sorted_row: int = 0
