"""Attention spelt as matmuls and a softmax as loops for a GPU: values, kernels and cubins, and what stays matmuls."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import composed_attention
import pytest
from generated_attention import Planned
from interpreted import found_by, sources_of

from litz_codegen_triton.capabilities import chip_model
from litz_codegen_triton.runtime import compile_source
from litz_ir.plan import CallStep
from litz_scheduler import SchedulerOptions

CASES = composed_attention.CASES


found = found_by(composed_attention.__file__, seconds=300)
pytestmark = pytest.mark.sampled(by="name")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", CASES)
def test_one_loop_computes_what_the_matmuls_and_the_softmax_compute(
    name: str, found: Mapping[str, dict[str, Any]]
) -> None:
    seen = found[name]
    assert seen["difference"] == ""
    assert (seen["kernels"], seen["serial"], seen["calls"]) == (CASES[name].kernels, 0, [])


@pytest.mark.parametrize("chip", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("name", ["math_merged", "math_mask", "hand_written_f16", "capped"])
def test_kernels_compile(
    name: str, chip: str, found: Mapping[str, dict[str, Any]], sources: Path, tmp_path: Path
) -> None:
    for source in sources_of(sources, name, found[name]["kernels"]):
        compiled = compile_source(source, chip, tmp_path)
        assert compiled.shared_bytes <= chip_model(chip).shared_bytes


@pytest.mark.parametrize("name", composed_attention.LEFT)
def test_what_only_looks_like_attention_stays_matmuls(name: str) -> None:
    case = composed_attention.LEFT[name]
    planned = Planned(lambda plan, inputs: [], composed_attention.DEFAULT)
    planned(case.function, *case.operands())
    (plan,) = planned.plans
    assert sum(isinstance(step, CallStep) for step in plan.steps) >= 2


def test_nothing_is_fused_without_fusion() -> None:
    case = CASES["math"]
    planned = Planned(lambda plan, inputs: [], SchedulerOptions(fuse=False))
    planned(case.function, *case.operands())
    (plan,) = planned.plans
    assert sum(isinstance(step, CallStep) for step in plan.steps) == 2
