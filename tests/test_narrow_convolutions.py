"""Convolutions over few channels on a GPU: eager's values, loops where these take less time, cubins."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import narrow_convolutions
import pytest
from interpreted import assert_form, found_by, sources_of
from narrow_convolutions import CONVOLUTION, GRADIENTS, H200

from litz_codegen_triton.emit import emit_kernel
from litz_codegen_triton.schedule import schedule_plan
from litz_ir.device import CPU
from litz_ir.passes import PassContext
from litz_ir.plan import CallStep
from litz_ir.text import parse_graph
from litz_scheduler import SchedulerOptions, schedule

sys.path.insert(0, str(Path(__file__).parents[1] / "packages" / "codegen-triton" / "tests"))
import triton_assembly

CASES = narrow_convolutions.CASES


found = found_by(narrow_convolutions.__file__, seconds=250)
pytestmark = pytest.mark.sampled(by="name")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CASES)
def test_a_plan_computes_what_eager_computes(name: str, found: Mapping[str, dict[str, Any]]) -> None:
    assert found[name]["difference"] == ""


@pytest.mark.parametrize("name", CASES)
def test_each_convolution_has_its_form(name: str, found: Mapping[str, dict[str, Any]]) -> None:
    assert_form(CASES[name], found[name])


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.kernels])
def test_kernels_compile_and_spill_nothing(
    name: str, found: Mapping[str, dict[str, Any]], sources: Path, tmp_path: Path
) -> None:
    for source in sources_of(sources, name, found[name]["kernels"]):
        outcome = triton_assembly.compiled(source, "sm_90", tmp_path)
        assert (outcome.refused, outcome.spilled) == ("", 0)


LARGE = """
graph g(%g: bf16[{n}, {o}, {y}, {y}] strides({a}, 1, {d}, {o}) fixed,
  %x: bf16[{n}, {c}, {x}, {x}] strides({b}, 1, {e}, {c}) fixed, %w: bf16[{o}, {c}, {k}, {k}] fixed
) -> (%y, %gw) {{
  %y = contraction.convolution aten.convolution.default(%x, %w, none, [{s}, {s}], [{p}, {p}], [1, 1], false, [0, 0], 1)
    -> bf16[{n}, {o}, {y}, {y}] strides({a}, 1, {d}, {o}) fixed need exact
  %gx, %gw, %gb = contraction.convolution aten.convolution_backward.default(%g, %x, %w, [0], [{s}, {s}], [{p}, {p}],
      [1, 1], false, [0, 0], 1, [false, true, false])
    -> bf16[{n}, {c}, {x}, {x}] strides({b}, 1, {e}, {c}) fixed, bf16[{o}, {c}, {k}, {k}] fixed,
       bf16[{o}] fixed need exact unpack
}}
"""
"""A convolution and the gradient of its weight: batch n, c channels of x by x points, o filters of k by k points."""


@pytest.mark.parametrize(
    ("n", "c", "x", "o", "k", "s", "calls"),
    [
        (128, 3, 224, 16, 3, 2, ()),
        (64, 3, 224, 32, 3, 2, ()),
        (8, 4, 64, 128, 3, 1, ()),
        (64, 3, 224, 64, 7, 2, (GRADIENTS,)),
        (64, 6, 224, 64, 7, 2, (CONVOLUTION, GRADIENTS)),
    ],
)
def test_the_quicker_form_of_large_images_is_chosen(
    n: int, c: int, x: int, o: int, k: int, s: int, calls: tuple[str, ...], tmp_path: Path
) -> None:
    y = (x - 1) // s + 1
    steps = {"a": o * y * y, "b": c * x * x, "d": o * y, "e": c * x}
    text = LARGE.format(n=n, c=c, x=x, y=y, o=o, k=k, s=s, p=k // 2, **steps)
    plan = schedule_plan(schedule(parse_graph(text), PassContext({CPU: H200}), SchedulerOptions()), H200)
    assert tuple(step.target for step in plan.steps if isinstance(step, CallStep)) == calls
    for kernel in plan.kernels:
        outcome = triton_assembly.compiled(emit_kernel(kernel), "sm_90", tmp_path)
        assert (outcome.refused, outcome.spilled) == ("", 0)


def test_strict_numerics_keep_the_call() -> None:
    text = LARGE.format(n=2, c=3, x=8, y=4, o=16, k=3, s=2, p=1, a=256, b=192, d=64, e=24)
    plan = schedule(parse_graph(text), PassContext({CPU: H200}), SchedulerOptions(exact=True))
    assert [step.target for step in plan.steps if isinstance(step, CallStep)] == [CONVOLUTION, GRADIENTS]
