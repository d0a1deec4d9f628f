"""Kinds of reductions without a row, which are written by their definitions: their results, and their compilation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import triton_reduction_kinds
from test_triton_interpret import run_interpreted
from triton_scheduled import emitted

from litz_codegen_triton.runtime.compile import compile_source
from litz_ir.loops import REDUCTION_KINDS

KERNELS = {name: kernel for name, kernel, _ in triton_reduction_kinds.cases()}


@pytest.fixture(scope="module")
def differences() -> Mapping[str, str]:
    program = Path(triton_reduction_kinds.__file__)
    return {line["case"]: line["difference"] for line in run_interpreted(program)}


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_agrees_with_the_reference_interpreter(name: str, differences: Mapping[str, str]) -> None:
    assert differences[name] == ""


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_merges_by_a_function_of_its_own_and_compiles(name: str, tmp_path: Path) -> None:
    with triton_reduction_kinds.without_spellings():
        source = emitted(KERNELS[name])
    assert "_combine(" in source.text
    assert compile_source(source, "sm_90", tmp_path).cubin


def test_the_cases_have_every_kind() -> None:
    found = set[str]().union(*map(triton_reduction_kinds.kinds_of, KERNELS.values()))
    assert found == {kind.name for kind in REDUCTION_KINDS.values() if kind.combines}
