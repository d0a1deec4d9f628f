"""Convolutions in groups that a GPU's library would pad: kernels pad their operands, and values, gradients and strides
are eager's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from interpreted import lines_by_case
from triton_padded_groups import CASES

PROGRAM = Path(__file__).with_name("triton_padded_groups.py")


@pytest.fixture(scope="module")
def found() -> Mapping[str, Any]:
    return lines_by_case(PROGRAM, seconds=280)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CASES)
def test_kernels_pad_the_operands_of_a_convolution(name: str, found: Mapping[str, Any]) -> None:
    case = CASES[name]
    assert found[name]["difference"] == ""
    assert found[name]["channels"] == list(case.channels) * (1 + 2 * case.gradients)
