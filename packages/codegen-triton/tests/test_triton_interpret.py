"""Every kernel of the corpus in Triton's interpreter, in a process of its own, against the reference interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import triton_corpus

HERE = Path(__file__).parent
CASES = triton_corpus.cases()


def run_interpreted(program: Path, *arguments: str) -> list[dict[str, str]]:
    """Return the lines of JSON that a program prints in a process with Triton's interpreter."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program), *arguments],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def differences() -> Mapping[str, str]:
    return {line["case"]: line["difference"] for line in run_interpreted(HERE / "triton_corpus.py")}


@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_a_kernel_agrees_with_the_reference_interpreter(name: str, differences: Mapping[str, str]) -> None:
    assert differences[name] == ""


@pytest.mark.parametrize("name", [case.name for case in triton_corpus.of_no_order()])
def test_kernels_that_depend_on_the_order_of_ctas_differ(name: str, differences: Mapping[str, str]) -> None:
    assert "differ" in differences[name]


def test_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
