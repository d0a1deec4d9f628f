"""Plans that may replace one another between calls of their graph."""

from __future__ import annotations

from dataclasses import replace

import pytest

from litz.results import may_replace, unshared_results
from litz_ir.plan import Plan
from litz_ir.text import from_text

PLAN = """
plan f on cuda "sm_90" (%x: f32[8] fixed, %z: f32[8] fixed) -> (%y, %v, %w, %z) {
  storage a: 32
  storage b: 32
  buffer %x: f32[8] fixed
  buffer %z: f32[8] fixed
  buffer %y: f32[8] fixed in a
  buffer %v: f32[2, 4] fixed shares %y
  buffer %w: f32[8] fixed in b
  allocate a
  allocate b
}
"""


CALLS = """
plan f on cuda "sm_90" (%x: f32[8, 8] fixed) -> (%y, %v, %w, %z, %a) {
  buffer %x: f32[8, 8] fixed
  buffer %y: f32[8, 8] fixed
  buffer %v: f32[64] fixed shares %y
  buffer %w: f32[8, 8] fixed
  buffer %z: f32[8, 8] fixed
  buffer %u: f32[8, 8] fixed
  buffer %a: f32[8, 4] strides(8, 1) fixed shares %u
  %y = call aten.mm.default(%x, %x)
  %w = call aten.mm.default(%x, %x)
  %u = call aten.mm.default(%x, %x)
  %z = call mylib.op.default(%x)
}
"""


def plan(text: str = PLAN) -> Plan:
    found = from_text(text)
    assert isinstance(found, Plan)
    return found


def test_results_that_share_memory() -> None:
    assert unshared_results(plan()) == {2}


def test_results_of_matmuls_share_no_memory() -> None:
    assert unshared_results(plan(CALLS)) == {2, 4}, (
        "%y is seen through %v, and mylib may return what it holds"
    )


def test_results_of_matmuls_have_whole_memory() -> None:
    narrow = CALLS.replace("buffer %u: f32[8, 8]", "buffer %u: f32[8, 7] strides(8, 1)")
    assert unshared_results(plan(narrow)) == {2}, "%u ends four bytes before a multiple of 64"


OTHERS = {
    "another layout": PLAN.replace("%w: f32[8] fixed", "%w: f32[4, 2] fixed"),
    "in an input's memory": PLAN.replace("%w: f32[8] fixed in b", "%w: f32[8] fixed shares %x"),
    "in another result's memory": PLAN.replace("%w: f32[8] fixed in b", "%w: f32[8] fixed shares %y"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_plan_with_other_layouts_or_sharing_is_no_replacement(name: str) -> None:
    assert not may_replace(plan(OTHERS[name]), plan())


def test_a_replacement_may_share_less_memory_and_overwrite_less() -> None:
    assert may_replace(plan(), plan())
    assert may_replace(plan(), plan(OTHERS["in another result's memory"]))
    assert may_replace(plan(), replace(plan(), donated=("x",)))
    assert not may_replace(replace(plan(), donated=("x",)), plan())
