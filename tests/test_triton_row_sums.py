"""Gradients of normalisations as Triton kernels: their results against eager, and rows and columns summed at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from interpreted import cases_in, lines_by_case
from triton_row_sums import CLUSTERED, DIVIDED, WHOLE

PROGRAM = Path(__file__).with_name("triton_row_sums.py")
BOUNDS = {torch.float32: 1e-6, torch.bfloat16: 2e-2}


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> Mapping[str, Any]:
    return lines_by_case(PROGRAM, *cases_in(request, "name"), seconds=580)


@pytest.mark.sampled
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", WHOLE)
def test_one_kernel_sums_rows_and_columns(name: str, found: Mapping[str, Any]) -> None:
    case, (*_, dtype) = found[name], WHOLE[name]
    assert "failure" not in case, case
    assert case["error"] < BOUNDS[dtype]
    assert len(case["kernels"]) == 1, "a loop over chunks of rows"
    assert case["serial"] == [], "rows are summed as tiles"


@pytest.mark.sampled
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CLUSTERED)
def test_a_cluster_divides_rows(name: str, found: Mapping[str, Any]) -> None:
    case, (_, shape, dtype) = found[name], CLUSTERED[name]
    assert "failure" not in case, case
    assert case["error"] < BOUNDS[dtype]
    assert case["clusters"] == [DIVIDED[shape]], "one kernel, launched in clusters"
    assert case["serial"] == [], "thread blocks send one another the sums of their shares"
