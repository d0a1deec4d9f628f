"""Attention of torch's own operators as loops for a GPU: their values, kernels and cubins."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import generated_attention
import pytest
from interpreted import found_by, sources_of

from litz_codegen_triton.capabilities import chip_model
from litz_codegen_triton.runtime import compile_source
from litz_ir.plan import CallStep
from litz_scheduler import SchedulerOptions

CASES, TITLES = generated_attention.CASES, generated_attention.TITLES
pytestmark = pytest.mark.sampled(by="name")


found = found_by(generated_attention.__file__, seconds=500)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", TITLES)
def test_a_plan_computes_what_the_operator_computes(name: str, found: Mapping[str, dict[str, Any]]) -> None:
    assert found[name]["difference"] == ""


@pytest.mark.parametrize("name", TITLES)
def test_scores_are_computed_by_dot(name: str, found: Mapping[str, dict[str, Any]]) -> None:
    case, seen = CASES[name.removesuffix("_backward")], found[name]
    kernels = case.kernels[name.endswith("_backward")]
    assert (seen["kernels"], seen["serial"], seen["calls"]) == (kernels, 0, [])


@pytest.mark.parametrize("chip", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize(
    "name",
    [f"{name}_backward" for name in ("flash_wide", "flash_grouped", "efficient_bias", "efficient_f32")],
)
def test_kernels_compile(
    name: str, chip: str, found: Mapping[str, dict[str, Any]], sources: Path, tmp_path: Path
) -> None:
    for source in sources_of(sources, name, found[name]["kernels"]):
        compiled = compile_source(source, chip, tmp_path)
        assert compiled.shared_bytes <= chip_model(chip).shared_bytes


@pytest.mark.parametrize("name", ["flash_causal", "efficient_bias", "cudnn"])
def test_what_nobody_asked_for_stays_a_call(name: str) -> None:
    case = CASES[name]
    planned = generated_attention.Planned(lambda plan, inputs: [], SchedulerOptions())
    assert planned(case.call, *case.operands()) == []
    ((step,),) = [plan.steps for plan in planned.plans]
    assert isinstance(step, CallStep)
    assert step.target == f"aten._scaled_dot_product_{case.routine}_attention.default"
