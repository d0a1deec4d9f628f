"""Public reports of compilers' faults, in `tests/reports`: litz does as eager does, or differs for a reason there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from reports import topics
from reports.outcome import judge
from reports.table import REPORTS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reports.md"


EVERY = 3
"""One report in so many is run here; `python -m reports` runs all."""
SAMPLE = list(REPORTS)[::EVERY]


@pytest.mark.parametrize("name", SAMPLE)
def test_a_report_is_as_in_eager(name: str) -> None:
    report = REPORTS[name]
    if report.differs:
        pytest.skip(report.differs)
    verdict, text = judge(report)
    assert verdict == "as eager", text


def test_reports_are_many_and_of_every_topic() -> None:
    issues = {each.source for each in REPORTS.values() if each.source}
    assert len(issues) >= 200
    assert {each.topic for each in REPORTS.values()} == {name.replace("_", " ") for name in topics.__all__}


def test_the_page_lists_every_report() -> None:
    listed = set(re.findall(r"^\| `(\w+)` \| [^|]*\|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == set(REPORTS)
