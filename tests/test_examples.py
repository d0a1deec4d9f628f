"""Tests that every program in examples/ runs unchanged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "examples"
PROGRAMS = sorted(FOLDER.glob("*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_example_runs(program: Path) -> None:
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "an example shows something"


def test_readme_lists_every_example() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [program.name for program in PROGRAMS if f"[{program.name}]" not in page] == []
