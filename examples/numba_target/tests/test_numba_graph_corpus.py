"""The scheduler's corpus of whole graphs on the Numba target."""

from __future__ import annotations

from pathlib import Path

import pytest

from litz_scheduler.conformance import run_graph_conformance
from litz_target_numba.target import NumbaTarget


@pytest.mark.timeout(300)
def test_every_graph_passes(tmp_path: Path) -> None:
    report = run_graph_conformance(NumbaTarget(), tmp_path)
    assert (report.failed, report.skipped) == ((), ()), report.describe()
    assert len(report.passed) == 121
