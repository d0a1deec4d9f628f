"""Samples of tests with many cases, which `pytest --sample` takes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = """
import pytest

@pytest.mark.sampled
@pytest.mark.parametrize("case", range(40))
def test_many(case): ...

@pytest.mark.sampled
@pytest.mark.parametrize("case", range(7))
def test_few(case): ...

@pytest.mark.sampled(by="name")
@pytest.mark.parametrize("chip", ["old", "new"])
@pytest.mark.parametrize("name", [f"n{k}" for k in range(28)])
def test_names(name, chip): ...

@pytest.mark.parametrize("case", range(40))
def test_all(case): ...
"""
MODULE = """
import pytest
pytestmark = pytest.mark.sampled
""" + "\n".join(f"def test_number_{number}(): ..." for number in range(30))


def collected(folder: Path, *options: str) -> list[str]:
    """Return the tests that pytest selects in a folder."""
    command = [sys.executable, "-m", "pytest", "-q", "--co", "-p", "no:cacheprovider", "-c", os.devnull]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    done = subprocess.run(
        [*command, *options, str(folder)], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout
    return [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]


def test_a_sample_is_a_part_of_the_cases_that_are_marked(tmp_path: Path) -> None:
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "test_cases.py").write_text(TESTS)
    assert len(collected(tmp_path)) == 40 + 7 + 56 + 40
    chosen = collected(tmp_path, "--sample", "4")
    counts = [sum(each.startswith(name) for each in chosen) for name in ("test_many", "test_few", "test_all")]
    assert counts == [10, 2, 40]
    names = [each[len("test_names[") : -1].split("-") for each in chosen if each.startswith("test_names")]
    assert len(names) == 14 and len({name for name, _ in names}) == 7


def test_a_sample_of_a_marked_module_is_a_part_of_its_tests(tmp_path: Path) -> None:
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "test_processes.py").write_text(MODULE)
    assert len(collected(tmp_path)) == 30
    chosen = collected(tmp_path, "--sample", "6")
    assert len(chosen) == 5 and chosen == collected(tmp_path, "--sample", "6")
