"""Tests that every program in examples/ runs unchanged; one that needs another library, where that is installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "examples"
PROGRAMS = sorted(FOLDER.glob("*.py"))
NEEDS = {"hf_trainer.py": ("transformers", "accelerate")}
"""Modules that a program needs besides litz and torch."""


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_example_runs(program: Path) -> None:
    for module in NEEDS.get(program.name, ()):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "an example shows something"


def test_readme_lists_every_example() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [program.name for program in PROGRAMS if f"[{program.name}]" not in page] == []


def test_accelerate_refuses_backends_that_it_does_not_list() -> None:
    """`docs/integrations.md` says so; where this fails, `torch_compile_backend="litz"` may work."""
    dataclasses = pytest.importorskip("accelerate.utils.dataclasses", reason="accelerate is not installed")
    with pytest.raises(ValueError, match="'LITZ' is not a valid DynamoBackend"):
        dataclasses.TorchDynamoPlugin(backend="litz")
