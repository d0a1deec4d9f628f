"""Public reports of compilers' faults, in `tests/reports`: litz does as eager does, or differs for a reason there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from reports import topics
from reports.outcome import judge
from reports.table import REPORTS

pytestmark = pytest.mark.sampled  # it compiles whole programs

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reports.md"


EVERY = 14
"""One report in so many of each topic is run here; `python -m reports` runs all."""
TOPICS = {name.replace("_", " ") for name in topics.__all__}


def sample() -> list[str]:
    """Return the names of the reports that are run, all of which litz promises to do as eager does."""
    right = [each for each in REPORTS.values() if not each.differs]
    return [r.name for topic in sorted(TOPICS) for r in [r for r in right if r.topic == topic][::EVERY]]


@pytest.mark.parametrize("name", sample())
def test_a_report_is_as_in_eager(name: str) -> None:
    verdict, text = judge(REPORTS[name])
    assert verdict == "as eager", text


def test_reports_are_many_and_of_every_topic() -> None:
    issues = {each.source for each in REPORTS.values() if each.source}
    assert len(issues) >= 200
    assert {each.topic for each in REPORTS.values()} == TOPICS


def test_the_page_lists_every_report() -> None:
    listed = set(re.findall(r"^\| `(\w+)` \| [^|]*\|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == set(REPORTS)
