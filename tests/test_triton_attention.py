"""Attention as Triton kernels: their results against eager, and scores computed by `tl.dot`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import flex_attention_cases
import pytest
from interpreted import found_by

SERIAL = {
    "dynamic": 3,  # heads of a size that is a symbol
    "learned_pairs_dynamic": 4,  # the same
}
"""Kernels of a case that run nested reductions point by point."""


found = found_by(str(Path(__file__).with_name("triton_attention.py")), seconds=500)
pytestmark = pytest.mark.sampled(by="name")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", flex_attention_cases.CASES)
def test_kernels_compute_what_eager_computes(name: str, found: Mapping[str, Any]) -> None:
    assert found[name]["difference"] == ""
    assert len(found[name]["serial"]) == SERIAL.get(name, 0), found[name]["serial"]
