"""The GPU that kernels are scheduled for where Triton's interpreter runs them."""

from __future__ import annotations

from litz_codegen_triton.capabilities import chip_model
from litz_codegen_triton.dtypes import SUPPORTED
from litz_ir.device import Device
from litz_ir.target import Capabilities

GPU = Capabilities(
    "sm_90",
    Device("cuda"),
    chip_model("sm_90"),
    atomics=SUPPORTED,
    nested_reductions=True,
    max_sorted_row=2048,
    max_tile_elements=32768,
    max_subkernels=64,
)
