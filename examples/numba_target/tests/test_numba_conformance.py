"""The conformance suite on the Numba target."""

from __future__ import annotations

from pathlib import Path

from litz_ir.target.conformance import conformance_cases, run_conformance
from litz_target_numba.target import NumbaTarget

UNSUPPORTED = {"matmul_f8_by_mul_f8", "matmul_f8_by_mul_f8_fast"}
"""Cases of fp8 matmuls at a precision of the device's own, which a CPU lacks."""


def test_conforms_but_for_fp8_matmuls(tmp_path: Path) -> None:
    report = run_conformance(NumbaTarget(), tmp_path)
    assert not report.failed, report.describe()
    assert {name for name, _ in report.skipped} == UNSUPPORTED, report.describe()
    assert set(report.passed) == {case.name for case in conformance_cases()} - UNSUPPORTED
    assert len(report.passed) >= 169
