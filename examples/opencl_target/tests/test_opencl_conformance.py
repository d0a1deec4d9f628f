"""The conformance suite on the OpenCL target."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from opencl_device import TARGET, needs_device

from litz_ir.dtypes import ALL
from litz_ir.plan import Kernel
from litz_ir.scalar import OPS
from litz_ir.target import SourceUnit, requirements_of
from litz_ir.target.conformance import case_plan, conformance_cases, lacking, run_conformance
from litz_target_opencl import build
from litz_target_opencl.build import OpenClModule
from litz_target_opencl.emit import workspaces
from litz_target_opencl.memory import ClMemory
from litz_target_opencl.ops_table import SPELLINGS
from litz_target_opencl.target import CAPABILITIES, OpenClTarget


class BuiltOnce(OpenClTarget):
    """A target that emits and builds the kernels of all cases in one program, to save time."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        cases = [case for case in conformance_cases() if not lacking(case, CAPABILITIES)]
        plans = [case_plan(case, CAPABILITIES) for case in cases]
        kernels = {kernel.name: kernel for plan in plans for kernel in plan.kernels}
        units = self.emit(replace(plans[0], name="suite", kernels=tuple(kernels.values()), steps=()))
        self.library = [super(BuiltOnce, self).build(unit, folder) for unit in units]
        self.module = super().load(units, self.library, kernels)

    def build(self, unit: SourceUnit, folder: Path) -> Path:
        return self.library[0]

    def load(
        self, units: Sequence[SourceUnit], binaries: Sequence[Path], kernels: Mapping[str, Kernel]
    ) -> OpenClModule:
        return self.module


@needs_device
def test_every_case_passes_but_for_what_the_capabilities_leave_out(tmp_path: Path) -> None:
    target = BuiltOnce(tmp_path)
    report = run_conformance(target, tmp_path, ClMemory(target.queue))
    assert not report.failed, report.describe()
    assert len(report.passed) >= 134, report.describe()
    lacked = {
        case.name
        for case in conformance_cases()
        if case.kernel.subkernels
        or requirements_of(case.kernel).sorted_row != 0
        or any(dtype.is_low_precision for dtype in requirements_of(case.kernel).dtypes)
    }
    assert {name for name, _ in report.skipped} == lacked, report.describe()
    missing = r"needs (b?f16|f8e\w+|sorts of 77 elements|horizontal fusion)(, (b?f16|f8e\w+))*"
    assert all(re.fullmatch(missing, reason) for _, reason in report.skipped), report.describe()


@needs_device
def test_work_items_whose_workspaces_are_large_run_in_several_launches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [case for case in conformance_cases() if case.kernel.outer and workspaces(case.kernel)]
    assert cases
    monkeypatch.setattr(build, "WORKSPACE_BYTES", 1)
    report = run_conformance(TARGET, tmp_path, ClMemory(TARGET.queue), cases=cases)
    assert len(report.passed) == len(cases), report.describe()


def test_every_operation_and_dtype_is_spelled_or_left_out_on_purpose() -> None:
    assert OPS.keys() - SPELLINGS.keys() == {"cast"}
    assert SPELLINGS.keys() <= OPS.keys()
    assert set(ALL) - CAPABILITIES.dtypes == {dtype for dtype in ALL if dtype.is_low_precision}
