"""A backend that schedules models for a GPU and runs their kernels in Triton's interpreter, on the CPU."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scheduled_for_gpu import ATEN, ScheduledForGpu

from litz_codegen_triton.capabilities import chip_model
from litz_codegen_triton.dtypes import SUPPORTED
from litz_codegen_triton.runtime.interpret import run_plan
from litz_codegen_triton.schedule import schedule_plan
from litz_ir.device import CPU
from litz_ir.plan import Plan
from litz_ir.target import Capabilities

MACHINE = Capabilities(
    "sm_90",
    CPU,  # whose tensors the models have
    chip_model("sm_90"),
    atomics=SUPPORTED,
    nested_reductions=True,
    max_sorted_row=2048,
    max_tile_elements=32768,
    max_subkernels=64,
)


def interpreting_backend() -> ScheduledForGpu:
    """Return a new backend; the process has been started with ``TRITON_INTERPRET=1``."""
    return ScheduledForGpu(MACHINE, _in_triton)


def _in_triton(plan: Plan, constants: Mapping[str, Any]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    scheduled = schedule_plan(plan, MACHINE)

    def run(given: Sequence[Any]) -> Sequence[Any]:
        with tempfile.TemporaryDirectory() as folder:
            return run_plan(scheduled, given, Path(folder), externs=ATEN, constants=constants)

    return run
