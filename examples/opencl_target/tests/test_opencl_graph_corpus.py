"""The scheduler's corpus of whole graphs on the OpenCL target."""

from __future__ import annotations

from pathlib import Path

import pytest
from opencl_device import needs_device

from litz_scheduler.conformance import run_graph_conformance
from litz_target_opencl.memory import ClMemory
from litz_target_opencl.target import OpenClTarget


@needs_device
@pytest.mark.timeout(300)
def test_every_graph_passes_but_for_dtypes_that_the_target_lacks(tmp_path: Path) -> None:
    target = OpenClTarget()
    report = run_graph_conformance(target, tmp_path, ClMemory(target.queue))
    assert report.failed == (), report.describe()
    assert len(report.passed) == 117
    assert {name for name, _ in report.skipped} == {"half", "bfloat", "layer_norm_of_half", "rms_norm"}
