"""Tests that the target in examples/opencl_target passes its own tests, where pyopencl is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent / "examples" / "opencl_target"


@pytest.mark.timeout(200)
@pytest.mark.skipif(
    find_spec("pyopencl") is None, reason="pyopencl is not installed: `nox -s targets` runs these tests"
)
def test_the_opencl_target_passes_its_tests() -> None:
    path = os.pathsep.join([str(PROJECT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", str(PROJECT / "tests")],
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=170,
    )
    print(done.stdout)  # with the reasons of tests that were skipped
    assert done.returncode == 0, done.stdout + done.stderr
