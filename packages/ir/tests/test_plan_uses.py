"""Buffers that the steps of a plan may write."""

from __future__ import annotations

from litz_ir.plan.buffer_uses import written_buffers, written_by
from litz_ir.plan.program import Launch
from litz_ir.text import parse_plan

PLAN = """
plan p on cpu "avx2" (%x: f32[8], %y: f32[8], %z: f32[8]) -> (%o) {
  storage s0: 32
  buffer %x: f32[8]
  buffer %y: f32[8]
  buffer %z: f32[8]
  buffer %o: f32[8] in s0
  buffer %v: f32[2, 4] shares %y
  kernel k(in %a: f32, out %b: f32, inout %c: f32) {
    outer [i0: 8]
    phase [] { %c[i0] = %c[i0] + %a[i0]; %b[i0] = %a[i0]; }
  }
  allocate s0
  launch k(%x, %o, %v)
  STEP
}
"""


def test_a_launch_writes_the_written_parameters_of_its_kernel() -> None:
    plan = parse_plan(PLAN.replace("STEP", ""))
    launch = next(step for step in plan.steps if isinstance(step, Launch))
    assert written_by(launch, {kernel.name: kernel for kernel in plan.kernels}) == ("o", "v")
    assert written_buffers(plan) == {"o", "y"}, "a view is replaced by the buffer whose memory it shares"


INNER = """  plan inner on cpu "avx2" (%a: f32[8], %b: f32[8]) -> () {
    buffer %a: f32[8]
    buffer %b: f32[8]
    call somebody.s_routine(%b)
  }
"""


def test_a_subplan_writes_the_buffers_that_its_steps_write() -> None:
    text = PLAN.replace("  allocate s0\n", INNER + "  allocate s0\n").replace(
        "STEP", "region.invoke(%x, %z) { inner }"
    )
    assert written_buffers(parse_plan(text)) == {"o", "y", "z"}
    assert written_buffers(parse_plan(text.replace("region.invoke", "region.cond"))) == {"o", "x", "y", "z"}


def test_a_routine_may_write_all_of_its_arguments() -> None:
    plan = parse_plan(PLAN.replace("STEP", "call somebody.s_routine(%x, [%z])"))
    assert written_buffers(plan) == {"o", "x", "y", "z"}
    assert written_buffers(plan, lambda target: not target.startswith("somebody.")) == {"o", "y"}
