"""Comparison of two plans of a graph, with called and with generated matmuls."""

from __future__ import annotations

from dataclasses import replace

from litz.tuning.matmul_choices import (
    MatmulChoice,
    comparison_options,
    matmul_choices,
    nodes_of,
    worth_generating,
)
from litz_ir.device import Device
from litz_ir.passes import PassContext
from litz_ir.plan import CallStep, Launch, Plan
from litz_ir.target import Capabilities, DeviceModel
from litz_ir.text import parse_graph
from litz_scheduler import SchedulerOptions, schedule

CUDA = Device("cuda")
MACHINE = Capabilities("sm_90", CUDA, DeviceModel(sm_count=132), max_tile_elements=32768)

LAYERS = """
graph layers on cuda(
  %x: bf16[512, 96] fixed, %u: bf16[96, 96] fixed, %v: bf16[96, 96] fixed, %w: bf16[96, 96] fixed,
  %d: f64[64, 64] fixed
) -> (%o, %q, %e) {
  %a = contraction.matmul aten.mm.default(%x, %u) -> bf16[512, 96] flops 1
  %b = pointwise bf16[i0: 512, i1: 96] { bf16(exp(f32(%a[i0, i1]))) }
  %c = contraction.matmul aten.mm.default(%b, %v) -> bf16[512, 96] flops 1
  %s = pointwise bf16[i0: 512, i1: 96] { bf16(exp(f32(%c[i0, i1]))) }
  %m = reduce.max bf16[i0: 512, i1: 1 | r0: 96] { %s[i0, r0] }
  %o = pointwise bf16[i0: 512, i1: 96] fixed { %s[i0, i1] - %m[i0, 0] }
  %q = contraction.matmul aten.mm.default(%x, %w) -> bf16[512, 96] fixed flops 1
  %e = contraction.matmul aten.mm.default(%d, %d) -> f64[64, 64] fixed flops 1
}
"""


def planned(*generated: str) -> Plan:
    options = SchedulerOptions(generated_matmuls=frozenset(generated))
    return schedule(parse_graph(LAYERS), PassContext({CUDA: MACHINE}), options)


def described(plan: Plan, steps: tuple[int, ...]) -> list[str]:
    """Return the steps as text: calls by their result, launches by their operations."""
    found = []
    for step in (plan.steps[position] for position in steps):
        if isinstance(step, CallStep):
            found.append(f"call {step.results[0]}")
        elif isinstance(step, Launch):
            found.append(" ".join(each.operation for each in step.origins))
    return found


def test_choices_contain_the_steps_of_both_plans_for_the_same_values() -> None:
    library, generated = planned(), planned("all")
    found = matmul_choices(library, generated)
    assert [choice.matmuls for choice in found] == [("a",), ("c",), ("q",)]
    first, second, third = found
    assert described(library, first.library) == ["call a", "b"]
    assert described(generated, first.generated) == ["a b"]
    assert described(library, second.library) == ["call c", "s m o"]
    assert described(generated, second.generated) == ["c s", "m o"]
    assert described(library, third.library) == ["call q"]
    assert described(generated, third.generated) == ["q"]


def test_plans_that_agree_leave_no_choice() -> None:
    assert matmul_choices(planned(), planned()) == ()
    assert [choice.matmuls for choice in matmul_choices(planned(), planned("c"))] == [("c",)]


def test_matmuls_that_save_time_are_generated() -> None:
    library, generated = planned(), planned("all")
    times = {"call a": 5.0, "b": 2.0, "a b": 6.0, "call c": 5.0, "s m o": 3.0, "c s": 6.0, "m o": 3.0}
    times |= {"call q": 5.0, "q": 4.9}

    def seconds(plan: Plan, steps: tuple[int, ...]) -> float:
        return sum(times[name] for name in described(plan, steps))

    chosen = worth_generating(library, generated, seconds, seconds)
    assert chosen == {"a"}, "c takes longer, q saves too little"
    made = planned(*chosen)
    assert [choice.matmuls for choice in matmul_choices(library, made)] == [("a",)]


def test_equal_steps_are_timed_once() -> None:
    again = "  %p = contraction.matmul aten.mm.default(%x, %v) -> bf16[512, 96] fixed flops 1\n"
    text = LAYERS.replace("  %q =", f"{again}  %q =").replace("%q, %e)", "%q, %p, %e)")
    both = [
        schedule(parse_graph(text), PassContext({CUDA: MACHINE}), SchedulerOptions(generated_matmuls=names))
        for names in (frozenset[str](), frozenset({"all"}))
    ]
    asked: list[tuple[int, ...]] = []

    def seconds(plan: Plan, steps: tuple[int, ...]) -> float:
        asked.append(steps)
        return 1.0 if plan is both[0] else 0.5

    choices: tuple[MatmulChoice, ...] = matmul_choices(*both)
    assert worth_generating(*both, seconds, seconds) == {"a", "c", "p", "q"}
    assert len(choices) == 4 and len(asked) == 2 * len(choices) - 2


def test_close_matmuls_are_tuned_once_the_slowest_first() -> None:
    both = planned(), planned("all")
    called, made = {"a": 1.0, "c": 3.0, "q": 2.0}, {"a": 1.2, "c": 3.0, "q": 4.0}
    tuned: list[str] = []

    def matmul(plan: Plan, steps: tuple[int, ...]) -> str:
        return next(name for name in called if any(name in nodes_of(plan.steps[k]) for k in steps))

    def seconds(plan: Plan, steps: tuple[int, ...]) -> float:
        return (called if plan is both[0] else made)[matmul(plan, steps)]

    def with_tiles(plan: Plan, steps: tuple[int, ...]) -> float:
        tuned.append(matmul(plan, steps))
        return 0.9 * seconds(plan, steps)

    assert worth_generating(*both, seconds, with_tiles) == {"c"}
    assert tuned == ["c", "a"], "a matmul that takes twice as long is not tuned"


def test_epilogues_are_not_fused_horizontally_while_matmuls_are_compared() -> None:
    graph = """
graph pair on cuda(
  %x: bf16[512, 96] fixed, %u: bf16[96, 96] fixed, %y: f32[64, 32], %v: bf16[32, 64] fixed
) -> (%o, %q) {
  %p = contraction.matmul aten.mm.default(%x, %u) -> bf16[512, 96] flops 1
  %o = pointwise bf16[i0: 512, i1: 96] { bf16(exp(f32(%p[i0, i1]))) }
  %b = pointwise bf16[i0: 64, i1: 32] fixed { bf16(%y[i0, i1]) }
  %q = contraction.matmul aten.mm.default(%b, %v) -> bf16[64, 64] fixed flops 1
}
"""
    context = PassContext({CUDA: replace(MACHINE, max_subkernels=64)})
    fused = schedule(parse_graph(graph), context, SchedulerOptions())
    assert "o b" in described(fused, tuple(range(len(fused.steps)))), "one launch, unless they are compared"
    library, generated = (
        schedule(parse_graph(graph), context, comparison_options(SchedulerOptions(), matmuls))
        for matmuls in (frozenset[str](), frozenset({"all"}))
    )
    assert [choice.matmuls for choice in matmul_choices(library, generated)] == [("p",), ("q",)]
