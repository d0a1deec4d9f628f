"""Attention as Triton kernels: what they compute beside eager, and that scores are products of tiles."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import flexible_attention
import pytest

PROGRAM = Path(__file__).with_name("triton_attention.py")
SERIAL = {
    "dynamic": 3,  # heads of a size that is a symbol
    "decode_alone": 1,  # a gradient of one query, which is no sum
}
"""The kernels of a case that add up folds point by point."""


@pytest.fixture(scope="module")
def found() -> Mapping[str, Any]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAM)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    return {line["case"]: line for line in map(json.loads, done.stdout.splitlines())}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", flexible_attention.CASES)
def test_kernels_compute_what_eager_computes(name: str, found: Mapping[str, Any]) -> None:
    assert found[name]["difference"] == ""
    assert len(found[name]["serial"]) == SERIAL.get(name, 0), found[name]["serial"]
