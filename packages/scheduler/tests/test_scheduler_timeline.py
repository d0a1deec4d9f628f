"""Memory over the steps of a plan: its peak is the plan's, and its owners are the values alive there."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from scheduler_builder import CPU_LIKE, Builder, plan_of
from scheduler_strategies import loop_graphs

from litz_ir.errors import ConfigError
from litz_ir.loops import LoopGraph
from litz_ir.plan import Allocate, memory_root
from litz_scheduler import memory_timeline


@settings(max_examples=60)
@given(graph=loop_graphs(steps=10))
def test_the_peak_of_the_steps_is_that_of_the_plan(graph: LoopGraph) -> None:
    plan = plan_of(graph, CPU_LIKE)
    found = memory_timeline(plan)
    assert found.peak == plan.peak and len(found.live) == len(plan.steps)
    if plan.steps:
        assert found.live[found.peak_step] == found.peak
    assert all(each.first <= found.peak_step <= each.last for each in found.owners)
    assert sum(each.nbytes for each in found.owners) + max(found.transient, default=0) <= found.peak
    sizes = [each.nbytes for each in found.owners]
    assert sizes == sorted(sizes, reverse=True)


def test_a_value_between_two_calls_owns_the_peak() -> None:
    b = Builder("chain")
    x, w = b.input(64, 48), b.input(48, 48)
    first = b.mm(x, w)
    graph = b.build(b.mm(b.op("exp", first), w))
    plan = plan_of(graph)
    found = memory_timeline(plan)
    owners = {each.value: each for each in found.owners}
    assert {each.nbytes for each in found.owners} == {64 * 48 * 4}
    placements = dict(plan.buffers)
    assert all(memory_root(name, placements) == name for name in owners)
    storages = {step.storage for step in plan.steps if isinstance(step, Allocate)}
    assert {each.storage for each in found.owners if each.storage} <= storages


def test_another_argument_is_refused() -> None:
    with pytest.raises(ConfigError, match="Plan"):
        memory_timeline("a plan")  # type: ignore[arg-type]
