"""Convolutions in groups that a GPU's library would pad: kernels pad their operands, and values, gradients and strides
are eager's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from interpreted import found_by
from triton_padded_groups import CASES

found = found_by(str(Path(__file__).with_name("triton_padded_groups.py")), seconds=280)
pytestmark = pytest.mark.sampled(by="name")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CASES)
def test_kernels_pad_the_operands_of_a_convolution(name: str, found: Mapping[str, Any]) -> None:
    case = CASES[name]
    assert found[name]["difference"] == ""
    assert found[name]["channels"] == list(case.channels) * (1 + 2 * case.gradients)
