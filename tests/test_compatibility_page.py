"""Tests that `docs/compatibility.md` has a grade and a verdict in each row, and names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "compatibility.md"
LINES = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
HEADER, *ROWS = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in LINES)
IDS = [re.sub(r"\W+", "-", row[0])[:40] for row in ROWS]
TEST = re.compile(r"`([\w/.-]+\.py)::(test_\w+)`")
GRADES = re.compile(r"[MSC](/[MSC])?( \(GPU\))?")
VERDICTS = re.compile(r"(Works|Own spelling|In part|Not there)\b")


def functions_of(path: Path) -> set[str]:
    """Return the names of the functions of a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}


def test_the_table_has_four_columns() -> None:
    assert HEADER == ["In use", "Grade", "litz", "Tests"]
    assert len(ROWS) == len({row[0] for row in ROWS}) >= 40


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_a_row_has_a_grade_a_verdict_and_tests_that_exist(row: list[str]) -> None:
    _, grade, verdict, cell = row
    assert GRADES.fullmatch(grade), grade
    assert VERDICTS.match(verdict), verdict
    named = TEST.findall(cell)
    assert cell.count("::") == len(named), "every test is a file and a function"
    for file, name in named:
        assert name in functions_of(ROOT / file), f"{file} has no {name}"
    if not verdict.startswith("Not there"):
        assert named, "what is there is shown by a test"
