"""Kinds of reductions without a class in the headers, which are accumulated by their definitions."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_cpp_target import Prebuilt

from litz_codegen_cpp.emit import kernel as emission
from litz_codegen_cpp.emit.loops.reduction import STATE_CLASSES
from litz_ir.loops import REDUCTION_KINDS, NamedCombiner
from litz_ir.plan import Accumulate, ScanStore
from litz_ir.target.cases.case import Case
from litz_ir.target.conformance import conformance_cases, run_conformance


def kinds_of(case: Case) -> set[str]:
    """The kinds that a case reduces or scans by."""
    statements = [each for phase in case.kernel.phases for each in phase.statements]
    combiners = [each.combiner for each in statements if isinstance(each, (Accumulate, ScanStore))]
    return {each.name for each in combiners if isinstance(each, NamedCombiner) and each.kind.combines}


def test_every_kind_is_accumulated_without_a_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emission, "STATE_CLASSES", {})
    cases = [case for case in conformance_cases() if kinds_of(case)]
    target = Prebuilt(tmp_path, cases)
    assert not any(f"{row.name}<" in unit.text for unit in target.units for row in STATE_CLASSES.values())
    report = run_conformance(target, tmp_path, cases=cases)
    assert not report.failed, report.describe()
    assert {name for case in cases if case.name in report.passed for name in kinds_of(case)} == {
        kind.name for kind in REDUCTION_KINDS.values() if kind.combines
    }
