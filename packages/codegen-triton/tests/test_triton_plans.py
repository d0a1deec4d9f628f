"""Plans of whole loop graphs: their results, their compilation, and index checks that fail."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import triton_graphs
from test_triton_interpret import run_interpreted

from litz_codegen_triton.runtime.compile import compile_plan

GRAPHS = {graph.name: graph for graph in triton_graphs.graphs()}


@pytest.fixture(scope="module")
def differences() -> Mapping[str, str]:
    program = Path(triton_graphs.__file__)
    return {line["case"]: line["difference"] for line in run_interpreted(program)}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_plan_agrees_with_the_reference_interpreter(name: str, differences: Mapping[str, str]) -> None:
    assert differences[name] == ""


@pytest.mark.parametrize("name", GRAPHS)
def test_a_plan_compiles(name: str) -> None:
    plan = triton_graphs.plan_of(GRAPHS[name])
    assert compile_plan(plan, "sm_90").keys() == {kernel.name for kernel in plan.kernels}


def test_an_index_out_of_range_is_an_index_error(differences: Mapping[str, str]) -> None:
    assert differences["embedding, out of range"] == "IndexOutOfRange"
