"""Each pass over the loop graph on a small graph, with its result in text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from scheduler_builder import CPU_LIKE, GPU_LIKE, assert_same, plan_of, verify_stage

from litz_ir.device import CPU
from litz_ir.errors import ScheduleError
from litz_ir.passes import FUEL_KINDS, Fuel, PassContext, Timings
from litz_ir.plan import CallStep, Launch
from litz_ir.target import Capabilities
from litz_ir.text import parse_graph, to_text
from litz_scheduler import (
    SchedulerOptions,
    default_passes,
    fusion_passes,
    graph_passes,
    plan_passes,
    schedule,
)

Golden = Callable[[str, str], None]


SOFTMAX = """
graph softmax(%x: f32[n, 1024] fixed) -> (%o) {
  symbols { n: int from 1 to 4096 hint 64 }
  %s = pointwise f32[i0: n, i1: 1024] { %x[i0, i1] * 0.125 }  @ mul (aten.mul.Tensor) m.py:1
  %m = reduce.max f32[i0: n | r0: 1024] { %s[i0, r0] }
  %e = pointwise f32[i0: n, i1: 1024] { exp(%s[i0, i1] - %m[i0]) }
  %z = reduce.sum f32[i0: n | r0: 1024] { %e[i0, r0] }
  %o = pointwise f32[i0: n, i1: 1024] fixed { %e[i0, i1] / %z[i0] }
}
"""


RUNNING = """
graph running(%x: f32[640] fixed, %y: i64[4, 96, 2] fixed, %h: f16[640] fixed) -> (%a, %b, %c, %d) {
  %a = scan.sum dimension 0 f32[ | k: 640] fixed { exp(%x[k]) }
  %b = scan.max dimension 1 i64[i0: 4, i1: 2 | k: 96] fixed { %y[i0, k, i1] }
  %c = scan.sum dimension 0 f16[ | k: 640] fixed { %h[k] }
  %d = pointwise f32[i0: 640] fixed { %a[i0] * 2.0 }
}
"""

DEPENDENT = """
graph dependent(%x: f32[8, 40] fixed, %y: f32[40, 8] fixed) -> (%soft, %again, %mean, %var, %unmerged, %count) {
  %maximum = reduce.max f32[i0: 8, i1: 1 | r0: 40] { %x[i0, r0] * 0.5 }
  %exponentials = pointwise f32[i0: 8, i1: 40] { exp(%x[i0, i1] * 0.5 - %maximum[i0, 0]) }
  %total = reduce.sum f32[i0: 8, i1: 1 | r0: 40] { %exponentials[i0, r0] }
  %soft = pointwise f32[i0: 8, i1: 40] fixed { %exponentials[i0, i1] / %total[i0, 0] }
  %again = reduce.sum f32[i0: 8 | r0: 40] fixed { exp(%x[i0, r0] * 0.5 - %maximum[i0, 0]) }
  %sum = reduce.sum f32[i0: 1, i1: 8 | r0: 40] { %y[r0, i1] }
  %mean = pointwise f32[i0: 8] fixed { %sum[0, i0] / 40.0 }
  %squares = reduce.sum f32[i0: 8 | r0: 40] {
    let difference = %y[r0, i0] - %sum[0, i0] / 40.0;
    difference * difference
  }
  %var = pointwise f32[i0: 8] fixed { %squares[i0] / 39.0 }
  %unmerged = reduce.sum f32[i0: 8 | r0: 40] fixed {
    let other = %y[r0, i0] - %sum[0, i0] / 39.0;
    other * other
  }
  %count = reduce.sum f32[i0: 8 | r0: 40] fixed { floor(%y[r0, i0]) }
  %about = reduce.sum f32[i0: 8 | r0: 40] {
    let difference = floor(%y[r0, i0]) - %count[i0] / 40.0;
    difference * difference
  }
}
"""


MATMUL_CALLS = """
graph matmul_calls(
  %x: bf16[64, 96] fixed, %w: bf16[128, 96] fixed, %b: bf16[128] fixed, %g: bf16[64, 128] strides(1, 64) fixed,
  %t: f32[3, 64, 96] fixed, %u: f32[3, 96, 8] fixed, %d: f64[64, 96] fixed, %e: f64[96, 8] fixed
) -> (%o, %p, %scaled, %zero, %odd, %q, %double) {
  %transposed = view bf16[i0: 96, i1: 128] { %w[i1, i0] }
  %o = contraction.matmul aten.addmm.default(%b, %x, %transposed) -> bf16[64, 128] fixed flops 1572864
  %p = contraction.matmul aten.mm.default(%x, %transposed) -> bf16[64, 128] fixed flops 1572864
  %scaled = contraction.matmul aten.addmm.default(%g, %x, %transposed, alpha=2, beta=0.5)
    -> bf16[64, 128] fixed flops 1572864
  %zero = contraction.matmul aten.addmm.default(%b, %x, %transposed, beta=0) -> bf16[64, 128] fixed flops 1572864
  %odd = contraction.matmul aten.mv.default(%x, %b) -> bf16[64] fixed flops 1572864
  %q = contraction.matmul aten.bmm.default(%t, %u) -> f32[3, 64, 8] fixed flops 1572864
  %double = contraction.matmul aten.mm.default(%d, %e) -> f64[64, 8] fixed flops 1572864
}
"""


CONVOLUTION_GRADIENTS = """
graph gradients(
  %x: bf16[2, 16, 8, 8] fixed, %w: bf16[24, 16, 3, 3] fixed, %d: bf16[2, 24, 4, 4] fixed,
  %v: f32[8, 4, 1] fixed, %r: f32[2, 8, 9] fixed, %e: f32[2, 8, 5] fixed,
  %t: bf16[16, 24, 2, 2] fixed, %l: bf16[2, 24, 16, 16] fixed
) -> (%gx, %gw, %gb, %gr, %gv, %gt, %gu) {
  %gx, %gw, %gb = contraction.convolution aten.convolution_backward.default(%d, %x, %w, [24], [2, 2], [1, 1], [1, 1],
      false, [0, 0], 1, [true, true, true])
    -> bf16[2, 16, 8, 8] fixed, bf16[24, 16, 3, 3] fixed, bf16[24] fixed need exact
  %gr, %gv, %nothing = contraction.convolution aten.convolution_backward.default(%e, %r, %v, [0], [2], [0], [1],
      false, [0], 2, [true, true, false])
    -> f32[2, 8, 9] fixed, f32[8, 4, 1] fixed, f32[0] fixed need exact
  %gt, %gu, %other = contraction.convolution aten.convolution_backward.default(%l, %x, %t, [0], [2, 2], [0, 0], [1, 1],
      true, [0, 0], 1, [true, true, false])
    -> bf16[2, 16, 8, 8] fixed, bf16[16, 24, 2, 2] fixed, f32[0] fixed need exact
}
"""

EVERY = SchedulerOptions(generated_matmuls=frozenset({"all"}))


@pytest.mark.parametrize("gpu_split_bytes", [16, 1 << 20])
def test_results_of_online_reductions(gpu_split_bytes: int) -> None:
    graph = parse_graph(DEPENDENT)
    plan = plan_of(
        graph, GPU_LIKE, SchedulerOptions(long_row=32, tall_column=32, gpu_split_bytes=gpu_split_bytes)
    )
    merged = [d.subject for d in plan.decisions if d.reason.key == "merge.online"]
    assert merged == ["total", "squares"]
    assert_same(graph, plan)


def test_the_online_sum_of_exponentials_of_minus_infinities_is_nan() -> None:
    graph = parse_graph("""
        graph infinite(%x: f32[4, 40] fixed) -> (%total) {
          %m = reduce.max f32[i: 4, j: 1 | r: 40] { log(%x[i, r] * 0.0) }
          %total = reduce.sum f32[i: 4 | r: 40] fixed { exp(log(%x[i, r] * 0.0) - %m[i, 0]) }
        }""")
    plan = plan_of(graph, GPU_LIKE, SchedulerOptions(long_row=32))
    assert "merge.online" in [each.reason.key for each in plan.decisions]
    assert_same(graph, plan)


@pytest.mark.parametrize("machine", [CPU_LIKE, GPU_LIKE], ids=lambda machine: machine.name)
def test_every_stage_of_a_softmax(machine: object, golden: Golden) -> None:
    assert machine in (CPU_LIKE, GPU_LIKE)
    capabilities = CPU_LIKE if machine == CPU_LIKE else GPU_LIKE
    stages: list[str] = []

    def record(name: str, before: Any, after: Any) -> None:
        verify_stage(name, before, after)
        if name in ("dead-code-2", "fuse", "plan"):
            stages.append(f"# after {name}\n{to_text(after)}")

    schedule(parse_graph(SOFTMAX), PassContext({CPU: capabilities}), hooks=[record])
    golden(f"softmax_{capabilities.name}.txt", "\n".join(stages))


def test_named_matmuls_are_generated_and_only_on_a_gpu() -> None:
    graph = parse_graph(MATMUL_CALLS)

    def calls(options: SchedulerOptions, machine: Capabilities = GPU_LIKE) -> list[str]:
        plan = plan_of(graph, machine, options)
        return [name or "" for step in plan.steps if isinstance(step, CallStep) for name in step.results]

    every = ["o", "p", "scaled", "zero", "odd", "q", "double"]
    assert sorted(calls(SchedulerOptions())) == sorted(every)
    assert sorted(calls(EVERY, CPU_LIKE)) == sorted(every)
    assert sorted(calls(EVERY)) == ["double", "odd"]
    chosen = calls(SchedulerOptions(generated_matmuls=frozenset({"p", "q", "double"})))
    assert sorted(chosen) == ["double", "o", "odd", "scaled", "zero"]


def test_named_convolutions_are_generated_and_only_on_a_gpu() -> None:
    graph = parse_graph(CONVOLUTION_GRADIENTS)

    def calls(options: SchedulerOptions, machine: Capabilities = GPU_LIKE) -> list[str]:
        plan = plan_of(graph, machine, options)
        return sorted(step.results[0] or "" for step in plan.steps if isinstance(step, CallStep))

    assert calls(SchedulerOptions()) == calls(EVERY, CPU_LIKE) == ["gr", "gt", "gx"]
    assert calls(EVERY) == []
    assert calls(SchedulerOptions(generated_matmuls=frozenset({"gt", "gw"}))) == ["gr"]


def test_pass_names_are_unique_and_passes_that_change_no_arithmetic_are_exact() -> None:
    passes = graph_passes(SchedulerOptions())
    assert len({item.name for item in passes}) == len(passes)
    assert [item.name for item in passes if item.ulp] == [
        "fuse-attention", "matmul-strategies", "contraction-strategies", "linear-matmuls",
        "prepack-convolutions", "propagate-channels-last", "convolution-strategies",
        "prepack-matmuls", "fuse-convolution-relu",
        "row-and-column-sums", "column-sums", "sums-of-chunks", "online-reductions", "split-reductions", "split-scans",
        "device-support",
    ]  # fmt: skip


@pytest.mark.parametrize("gpu_split_bytes", [16, 512, 1 << 20])
def test_results_of_split_scans(gpu_split_bytes: int) -> None:
    # The test inputs have no f16.
    without_f16 = re.sub(r", %h: f16\[640\] fixed|, %c|  %c = .*\n", "", RUNNING)
    graph = parse_graph(without_f16)
    assert_same(graph, plan_of(graph, GPU_LIKE, SchedulerOptions(gpu_split_bytes=gpu_split_bytes)))


def test_timings_and_hooks_name_every_pass() -> None:
    timings, seen = Timings(), []
    schedule(
        parse_graph(SOFTMAX),
        PassContext({CPU: CPU_LIKE}),
        hooks=[lambda name, before, after: seen.append(name)],
        timings=timings,
    )
    options = SchedulerOptions()
    passes = (*default_passes(options).graph_for({"cpu"}), *fusion_passes(options))
    expected = [each.name for each in passes] + ["fuse"]
    expected += [each.name for each in plan_passes(options)] + ["plan"]
    assert len({*expected}) == len(expected), "names are unique"
    assert seen == expected
    assert list(timings.seconds) == expected


@pytest.mark.parametrize(("machine", "limit"), [(CPU_LIKE, 24), (GPU_LIKE, 26)])
def test_passes_of_other_devices_do_not_run(machine: Capabilities, limit: int) -> None:
    passes = default_passes()
    seen: list[str] = []
    schedule(parse_graph(SOFTMAX), PassContext({CPU: machine}), hooks=[lambda name, *_: seen.append(name)])
    skipped = [each.name for each in passes.graph if each.name not in seen]
    other = "gpu" if machine is CPU_LIKE else "cpu"
    assert skipped == [each.name for each in passes.graph if getattr(each, "devices", "") == other]
    assert len(passes.graph) - len(skipped) <= limit


@pytest.mark.parametrize("fuel", range(7))
def test_fuel_stops_the_passes_and_the_plan_is_complete(fuel: int) -> None:
    passes = graph_passes(SchedulerOptions())
    plan = schedule(parse_graph(SOFTMAX), PassContext({CPU: CPU_LIKE}), fuel=fuel)
    assert any(isinstance(step, Launch) for step in plan.steps)
    assert fuel <= len(passes)


def test_fuel_of_the_context_limits_fusions_and_shared_memory() -> None:
    def kernels(**limits: int) -> int:
        fuel = Fuel({kind: limits.get(kind.replace("-", "_"), 99) for kind in FUEL_KINDS})
        plan = schedule(parse_graph(SOFTMAX), PassContext({CPU: CPU_LIKE}, fuel=fuel))
        assert all(len(made) <= fuel.limits[kind] for kind, made in fuel.spent.items())
        return len(plan.kernels)

    assert kernels() < kernels(fusion=1) < kernels(fusion=0)
    assert kernels(memory=0, graph_pass=0) >= kernels()


def test_a_device_without_capabilities_is_named_in_the_error() -> None:
    graph = parse_graph(SOFTMAX.replace("graph softmax(", "graph softmax on cuda("))
    with pytest.raises(ScheduleError, match="no target is given for device cuda"):
        schedule(graph, PassContext({CPU: CPU_LIKE}))
