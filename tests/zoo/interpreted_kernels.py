"""A backend that schedules models for a GPU and runs their kernels in Triton's interpreter, on the CPU."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from interpreted_gpu import GPU
from scheduled_for_gpu import ATEN, ScheduledForGpu

from litz_codegen_triton.runtime.interpret import run_plan
from litz_codegen_triton.schedule import schedule_plan
from litz_ir.device import CPU
from litz_ir.plan import Plan

MACHINE = replace(GPU, device=CPU)  # whose tensors the models have


def interpreting_backend() -> ScheduledForGpu:
    """Return a new backend; the process has been started with ``TRITON_INTERPRET=1``."""
    return ScheduledForGpu(MACHINE, _in_triton)


def _in_triton(plan: Plan, constants: Mapping[str, Any]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    scheduled = schedule_plan(plan, MACHINE)

    def run(given: Sequence[Any]) -> Sequence[Any]:
        with tempfile.TemporaryDirectory() as folder:
            return run_plan(scheduled, given, Path(folder), externs=ATEN, constants=constants)

    return run
