"""Gradients of normalisations as Triton kernels: their results against eager, and rows and columns summed at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from interpreted import lines_by_case
from triton_row_sums import DIVIDED, SHAPES

PROGRAM = Path(__file__).with_name("triton_row_sums.py")
BOUNDS = {"torch.float32": 1e-6, "torch.bfloat16": 2e-2}


@pytest.fixture(scope="module")
def found() -> Mapping[str, Any]:
    return lines_by_case(PROGRAM, seconds=280)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("program", ["layer_norm", "rms_norm", "two_norms"])
def test_one_kernel_sums_rows_and_columns(
    program: str, shape: tuple[int, ...], dtype: str, found: Mapping[str, Any]
) -> None:
    case = found[f"{program} of {shape} in {dtype}"]
    assert "failure" not in case, case
    assert case["error"] < BOUNDS[dtype]
    assert len(case["kernels"]) == 1, "a loop over chunks of rows"
    assert case["serial"] == [], "rows are summed as tiles"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("shape", DIVIDED, ids=str)
@pytest.mark.parametrize("program", ["layer_norm", "rms_norm"])
def test_a_cluster_divides_rows(
    program: str, shape: tuple[int, ...], dtype: str, found: Mapping[str, Any]
) -> None:
    case = found[f"{program} of {shape} in {dtype}"]
    assert "failure" not in case, case
    assert case["error"] < BOUNDS[dtype]
    assert case["clusters"] == [DIVIDED[shape]], "one kernel, launched in clusters"
    assert case["serial"] == [], "thread blocks send one another the sums of their shares"
