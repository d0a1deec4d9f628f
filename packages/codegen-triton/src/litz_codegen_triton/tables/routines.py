"""Rates of cuBLAS and cuDNN on each chip, in bf16 and channels-last, and of loops in their place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from litz_ir.target import RoutineModel

HOPPER_ROUTINES = RoutineModel(
    measured_on="H200, cuBLAS and cuDNN of torch 2.11; matmuls of unaligned rows and convolutions in groups on an H100",
    matmul_share=0.7,  # 4,096 x 768 x 50,264: 0.71
    # 50,257 columns reach 0.09, 30,522 columns 0.24. Rows aligned to more elements have not been measured.
    unaligned_matmul_shares=((1, 0.09), (2, 0.24)),
    matmul_loop_share=0.55,  # 0.56 for the first of these sizes without padding
    grouped_share=0.3,
    # cuDNN copies single elements, 5.2 ns for each KB: 64 x 216 x 28 x 28 in groups of 24 takes 302 us forward and 587
    # backward, with padded operands 127 and 184, ATen's copies of these included.
    group_slowness=25,
    # 3 to 64 channels, 7 x 7 by 2, 64 x 224 x 224 take 445 us forward and 293 for the weight.
    narrow_share=0.1,
    narrow_gradient_share=0.16,
    narrow_columns=64,
    narrow_slowness=4,  # 3 x 3 by 2, 128 x 3 x 224 x 224 and 64 x 3 x 224 x 224
    gathered_flops=200,  # 0.33 to 1.5 elements in a picosecond
    # The library's gradient of the input takes up to 2.3 times its convolution, with a stride up to 3.4 times.
    depthwise_taps=25,
    fused_depthwise_taps=9,
    depthwise_sums=(10, 25, 49),
)
"""The numbers of ``sm_90``."""

_TABLES: Mapping[str, RoutineModel] = MappingProxyType({"sm_90": HOPPER_ROUTINES})
_OTHERS = replace(HOPPER_ROUTINES, measured_on="no GPU of this chip; the numbers are those of an H200")


def routines_of(chip: str) -> RoutineModel:
    """Return the numbers of a chip, such as ``sm_90``. One without a row has those of ``sm_90``."""
    return _TABLES.get(chip, _OTHERS)
