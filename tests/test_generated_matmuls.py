"""Matmuls generated for a GPU: eager's values, prologues and epilogues, cubins."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import generated_matmuls
import pytest
import torch
from interpreted import found_by, sources_of

from litz_codegen_triton.capabilities import chip_model
from litz_codegen_triton.runtime import compile_source

CASES = generated_matmuls.CASES
SCALED_BY_ROWS, BY_MM_V2 = ("f8_scaled_rows", "f8_scaled_mm_v2"), "aten::_scaled_mm_v2"


found = found_by(generated_matmuls.__file__, seconds=250)
pytestmark = pytest.mark.sampled(by="name")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CASES)
def test_a_plan_computes_what_eager_computes(name: str, found: Mapping[str, dict[str, Any]]) -> None:
    if name in SCALED_BY_ROWS and not torch._C._dispatch_has_kernel_for_dispatch_key(BY_MM_V2, "CPU"):
        pytest.skip("this torch has scales for each row of 8-bit floats on GPUs alone")
    assert found[name]["difference"] == ""


@pytest.mark.parametrize("name", CASES)
def test_matmuls_are_fused_with_prologue_and_epilogue(name: str, found: Mapping[str, dict[str, Any]]) -> None:
    case, seen = CASES[name], found[name]
    assert (seen["dot_kernels"], seen["kernels"], seen["calls"]) == (case.dot_kernels, case.kernels, [])


@pytest.mark.parametrize(("name", "chip"), [(name, chip) for name in CASES for chip in CASES[name].chips])
def test_kernels_compile(
    name: str, chip: str, found: Mapping[str, dict[str, Any]], sources: Path, tmp_path: Path
) -> None:
    for source in sources_of(sources, name, found[name]["kernels"]):
        compiled = compile_source(source, chip, tmp_path)
        assert compiled.shared_bytes <= chip_model(chip).shared_bytes
