"""Tests that the benchmarks build and run."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cases import CASES

pytestmark = pytest.mark.sampled  # each test starts processes or compiles whole programs

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"


@functools.cache
def measure(*arguments: str) -> dict[str, Any]:
    """Run measure.py for a moment and return its row, of which tests read different columns."""
    command = [sys.executable, str(FOLDER / "measure.py"), *arguments, "--seconds", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


@pytest.mark.parametrize(("case", "mode"), [("swiglu_gate", "infer"), ("residual_layer_norm", "train")])
def test_measure_reports_times_of_eager(case: str, mode: str) -> None:
    row = measure(case, "eager", mode)
    assert (row["case"], row["backend"], row["mode"]) == (case, "eager", mode)
    assert 0 < row["low"] <= row["median"]
    assert row["error"] is None


@pytest.mark.parametrize(("backend", "tensors"), [("eager", 2), ("litz", 1)])
def test_measure_reports_the_memory_of_a_call(backend: str, tensors: int) -> None:
    result = 2048 * 1536 * 4  # bytes; eager also holds the gate's
    assert tensors * result <= measure("swiglu_gate", backend, "infer")["peak"] < tensors * result + 4096


def test_measure_compares_litz_with_eager() -> None:
    row = measure("adamw_step", "litz", "infer")
    assert row["error"] <= 1e-4
    assert row["first"] > row["median"]


def test_warm_starts_are_timed_without_dynamo(tmp_path: Path) -> None:
    more = tmp_path / "more.py"
    more.write_text(
        "import cases, torch\n"
        "cases.CASES.clear()\n"
        "@cases.case('pointwise')\n"
        "def double():\n"
        "    return lambda x: x * 2, (torch.ones(8),)\n"
    )
    given = ["--backends", "litz", "--modes", "train", "--repeats", "1", "--caches", str(tmp_path)]
    command = [sys.executable, str(FOLDER / "warm.py"), "--more", str(more), *given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    mode, name, backend, seconds, unit = done.stdout.split()
    assert (mode, name, backend, unit) == ("train", "double", "litz", "s") and 0 < float(seconds) < 60
    assert (tmp_path / "double-train-litz" / "filled").exists()


LIBRARY = ("mm", "addmm", "bmm", "linear", "convolution", "prepack_convolution", "_scaled_dot_product")


def test_only_a_library_does_what_no_kernel_does() -> None:
    topics = ("pointwise", "reduction", "index", "block")
    names = [
        name for topic in topics for name in [n for n, case in CASES.items() if case.topic == topic][::3]
    ]
    command = [sys.executable, str(FOLDER / "calls.py"), "--cases", ",".join(names)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["mode"] for row in rows} == {"infer", "train"}
    for row in rows:
        assert (row["without_rule"], row["uncompiled"]) == ([], 0), row
        assert all(call.removeprefix("aten.").startswith(LIBRARY) for call in row["calls"]), row


def test_runner_knows_every_case() -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "run.py"), "--help"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "block, index, model, pointwise, reduction" in " ".join(done.stdout.split())
