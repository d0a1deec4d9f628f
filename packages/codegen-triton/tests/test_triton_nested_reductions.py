"""Nested reductions and softmax-weighted sums: the results of their kernels, and their compilation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import triton_nested_reductions
from test_triton_interpret import run_interpreted
from triton_scheduled import emitted, requested

from litz_codegen_triton.runtime.compile import compile_source
from litz_ir.target.cases import all_cases

CASES = {case.name: case for case in triton_nested_reductions.cases()}
SUITE = {case.name: case.kernel for case in all_cases() if case.nested_reductions}


@pytest.fixture(scope="module")
def differences() -> Mapping[str, str]:
    program = Path(triton_nested_reductions.__file__)
    return {line["case"]: line["difference"] for line in run_interpreted(program)}


@pytest.mark.parametrize("name", [*CASES, *(f"suite: {name}" for name in SUITE)])
def test_a_kernel_agrees_with_the_reference_interpreter(name: str, differences: Mapping[str, str]) -> None:
    assert differences[name] == ""


@pytest.mark.parametrize("name", [*CASES, *SUITE])
def test_a_kernel_compiles(name: str, tmp_path: Path) -> None:
    made = CASES[name].kernel if name in CASES else requested(SUITE[name])
    assert compile_source(emitted(made), "sm_90", tmp_path).cubin
