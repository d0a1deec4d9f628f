"""The scheduler's corpus of whole graphs on the C target."""

from __future__ import annotations

from pathlib import Path

from litz_scheduler.conformance import run_graph_conformance
from litz_target_c.target import CTarget


def test_every_graph_passes_but_for_dtypes_that_c_lacks(tmp_path: Path) -> None:
    report = run_graph_conformance(CTarget(), tmp_path)
    assert report.failed == (), report.describe()
    assert len(report.passed) == 117
    assert {name for name, _ in report.skipped} == {"half", "bfloat", "layer_norm_of_half", "rms_norm"}
