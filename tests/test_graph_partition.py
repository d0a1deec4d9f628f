"""Graph partition for CUDA graphs: partitioned plans compute the same, and results that callers hold stay intact."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.testing import assert_close

from litz.cuda_graphs.eligibility import mutates
from litz.cuda_graphs.partition import ROUTINES
from litz_ir.device import Device
from litz_ir.dtypes import b1
from litz_ir.loops import LoopGraph, Value
from litz_ir.passes import PassContext
from litz_ir.plan import CheckStep, Plan, RegionStep, Step
from litz_ir.scalar import const
from litz_ir.target import Capabilities
from litz_ir.text import parse_plan
from litz_ir.verifier import verify
from litz_scheduler import SchedulerOptions
from litz_scheduler.graph_partition import GraphPartition, PartitionGraph, Routines
from litz_scheduler.graph_partition.host_time import CALL, LAUNCH, REPLAY, Work, work_of
from litz_scheduler.graph_partition.partition import partition_plan

sys.path.insert(0, str(Path(__file__).parents[1] / "packages" / "scheduler" / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "packages" / "frontend" / "tests"))
from scheduler_builder import CPU_LIKE, assert_same, plan_of
from scheduler_strategies import loop_graphs
from test_frontend_replay import Recorder

BRIEF = 5e-6
"""Host time of a replay in seconds, so short that a capture pays for two launches or one call."""

HOLDS = CheckStep(const(True, b1), "never")


def checked(plan: Plan, places: list[int]) -> Plan:
    """Return the plan with checks, which always hold, between some of its steps."""
    steps: list[Step] = []
    for at, step in enumerate(plan.steps):
        steps += [HOLDS] * (at in {place % len(plan.steps) for place in places}) + [step]
    return replace(plan, steps=tuple(steps))


@settings(max_examples=150, deadline=None)
@given(
    graph=loop_graphs(steps=12),
    places=st.lists(st.integers(0, 40), max_size=3),
    donates=st.booleans(),
    alone=st.sets(st.sampled_from(["fill", "draw", "positives", "mm", "sort", "copy_with_strides"])),
)
def test_a_partitioned_plan_computes_the_same(
    graph: LoopGraph, places: list[int], donates: bool, alone: set[str]
) -> None:
    if donates:
        changed = {value.replaces for operation in graph.operations for value in operation.results}
        free = tuple(v.name for v in graph.inputs if isinstance(v, Value) and v.name not in changed)
        graph = replace(graph, donated=free)
    plan = checked(plan_of(graph, CPU_LIKE, SchedulerOptions(fuse=False)), places)
    made = partition_plan(plan, Routines(lambda target: target in alone, mutates), BRIEF)
    verify(made.plan)
    assert_same(graph, made.plan)
    for part in made.partitions:
        steps = made.plan.subplan(part).steps
        assert work_of(steps).pays(BRIEF)
        assert not any(isinstance(step, CheckStep | RegionStep) for step in steps)
    assert sum(isinstance(step, RegionStep) for step in made.plan.steps) == len(made.partitions)
    assert sum(step == HOLDS for step in made.plan.steps) == sum(step == HOLDS for step in plan.steps)


def chosen(plan: Plan, replay: float = REPLAY) -> GraphPartition:
    """Return the verified partition of a plan."""
    known = {Device("cuda"): Capabilities("sm_90", Device("cuda"), graph_capture=True)}
    found = PartitionGraph(ROUTINES, replay).apply(plan, PassContext(known))
    verify(found)
    return found


@pytest.fixture
def recorders(monkeypatch: pytest.MonkeyPatch) -> list[Recorder]:
    """Capture partitions of graphs on the CPU with stand-ins for CUDA graphs, which are appended to this list."""
    made: list[Recorder] = []

    def capture_of(device: int) -> Recorder:
        made.append(Recorder())
        return made[-1]

    def divide(_: PartitionGraph, plan: Plan, context: PassContext) -> GraphPartition:
        found = partition_plan(plan, ROUTINES, BRIEF)
        return GraphPartition(found.plan, partitions=found.partitions, summary="; ".join(found.reasons))

    monkeypatch.setattr(PartitionGraph, "apply", divide)
    monkeypatch.setattr("litz.cuda_graphs.cuda_graph.capture_of", capture_of)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    return made


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    torch._dynamo.reset()
    options = {"cuda_graphs": True, "fuse": False, "cache": False}
    made: Callable[..., Any] = torch.compile(
        function, backend="litz", fullgraph=True, dynamic=False, options=options
    )
    return made


def halves(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Two partitions with an assertion on values between them."""
    a = (x @ w).relu()
    b = a.sum(0)
    torch._assert_async((b > -1).all(), "negative")
    return a, (a * b) @ w, b.exp()


def test_a_check_in_the_middle_is_left_out_and_the_halves_are_replayed(recorders: list[Recorder]) -> None:
    run, results = compiled(halves), []
    w = torch.randn(8, 8)
    for _ in range(10):
        x = torch.randn(4, 8)
        results.append((run(x, w), halves(x, w)))
    assert [each.replays > 4 for each in recorders] == [True, True]
    for found, expected in results:
        assert_close(found, expected)
    with pytest.raises(RuntimeError, match="negative"):
        run(torch.full((4, 8), float("nan")), w)
    assert_close(run(x, w), halves(x, w))


def test_replays_are_events_of_a_profiler_and_are_not_captured_again(recorders: list[Recorder]) -> None:
    run, w = compiled(halves), torch.randn(8, 8)
    for _ in range(8):
        run(torch.randn(4, 8), w)
    captures = [each.captures for each in recorders]
    x = torch.randn(4, 8)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        found = run(x, w)
    assert_close(found, halves(x, w))
    names = [event.name for event in profiler.events()]
    assert sum(name.startswith("litz graph ") for name in names) == 1
    assert sum(name.startswith("litz CUDA graph ") for name in names) == len(recorders) == 2
    assert [each.captures for each in recorders] == captures


def test_writes_of_a_partition_take_effect(recorders: list[Recorder]) -> None:
    def step(x: Tensor, momentum: Tensor) -> Tensor:
        momentum.mul_(0.5).add_(x)
        torch._assert_async((momentum.sum() < 1e6), "too large")
        momentum.add_(1)
        return (momentum * 2).cumsum(0)

    run = compiled(step)
    ours, theirs = torch.zeros(6), torch.zeros(6)
    for number in range(8):
        x = torch.full((6,), float(number))
        assert_close(run(x, ours), step(x, theirs))
        assert_close(ours, theirs)
        if number == 5:
            # A new address: the partition that captured the old one is captured again.
            ours = ours.clone()
    assert recorders


def test_training_with_partitions(recorders: list[Recorder]) -> None:
    def loss(x: Tensor, w: Tensor) -> Tensor:
        return halves(x, w)[1].square().mean()

    run = compiled(loss)
    w = torch.randn(8, 8, requires_grad=True)
    for _ in range(8):
        x = torch.randn(4, 8)
        (found,), (expected,) = (torch.autograd.grad(each(x, w), w) for each in (run, loss))
        assert_close(found, expected)
    assert any(each.replays for each in recorders)


PLAN = """
plan p on cuda "sm_90" (%x: f32[8]) -> (%o) {
  buffer %x: f32[8]
  buffer %a: f32[8]
  buffer %b: f32[8]
  buffer %c: f32[8]
  buffer %o: f32[8]
  %a = call aten.sin.default(%x)
  %b = call aten.cos.default(%a)
  MORE
  STEP
  %o = call aten.add.Tensor(%b, %c)
}
"""


LAUNCHES = """
plan p on cuda "sm_90" (%x: f32[8], %o: f32[8]) -> (%o) {
  buffer %x: f32[8]
  buffer %o: f32[8]
  kernel k(in %a: f32, out %b: f32) {
    outer [i0: 8]
    phase [] { %b[i0] = %a[i0]; }
  }
  STEPS
}
"""


def planned(step: str, more: int) -> Plan:
    """Return the plan of four calls, and of ``more`` others whose results are not read."""
    others = "\n  ".join(["call aten.neg.default(%a)"] * more)
    return parse_plan(PLAN.replace("MORE", others).replace("STEP", step))


EXP = "%c = call aten.exp.default(%b)"
CHECKED = '%c = call aten.exp.default(%b) check { true } "no"'
ROUTINE = "%c = call somebody.s_routine(%b)"
TWO_CALLS = "2 calls take less host time than a replay (20 us, not 22)"
ONE_CALL = "1 call takes less host time than a replay (10 us, not 22)"


@pytest.mark.parametrize(
    ("step", "more", "says"),
    [
        (EXP, 0, "replayed as a CUDA graph"),
        (CHECKED, 0, "3 of 4 launches and calls replayed as a CUDA graph; between them: it checks values; " + ONE_CALL),
        (ROUTINE, 1, "3 of 5 launches and calls replayed as a CUDA graph; "
         f"between them: somebody.s_routine cannot be captured; {ONE_CALL}"),
        (ROUTINE, 0, f"not replayed: somebody.s_routine cannot be captured; {TWO_CALLS}"),
    ],
)  # fmt: skip
def test_the_choice_has_a_summary(step: str, more: int, says: str) -> None:
    assert chosen(planned(step, more)).summary == says


@pytest.mark.parametrize(
    ("launches", "calls", "pays"),
    [(0, 0, False), (1, 0, False), (5, 0, False), (6, 0, True), (0, 2, False), (1, 2, True), (3, 1, True)],
)
def test_a_capture_pays_where_a_replay_takes_less_host_time(launches: int, calls: int, pays: bool) -> None:
    plan = launching(launches, calls)
    work = work_of(plan.steps)
    assert work == Work(launches, calls) and work.seconds == launches * LAUNCH + calls * CALL
    assert work.pays(REPLAY) == pays
    found = chosen(plan)
    assert (found.plan, found.whole, found.partitions) == (plan, pays, ())
    assert found.summary == ("replayed as a CUDA graph" if pays else f"not replayed: {work.reason(REPLAY)}")


def test_plans_too_short_for_a_capture_state_their_host_time() -> None:
    assert (
        chosen(launching(1, 0)).summary
        == "not replayed: 1 launch takes less host time than a replay (4 us, not 22)"
    )
    says = "not replayed: 2 launches and 1 call take less host time than a replay (18 us, not 22)"
    assert chosen(launching(2, 1)).summary == says
    assert chosen(launching(1, 0), replay=1e-6).whole


def launching(launches: int, calls: int) -> Plan:
    """Return a plan of so many launches and calls, all of which can be captured."""
    steps = ["launch k(%x, %o)"] * launches + ["call aten.neg.default(%x)"] * calls
    return parse_plan(LAUNCHES.replace("STEPS", "\n  ".join(steps)))


def test_nothing_is_captured_on_other_devices() -> None:
    text = PLAN.replace("MORE", "").replace("STEP", EXP)
    plan = parse_plan(text.replace("on cuda", "on cpu"))
    assert chosen(plan) == GraphPartition(plan, summary="not replayed: it does not run on a GPU")
