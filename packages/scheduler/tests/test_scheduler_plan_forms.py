"""Forms between the passes that build a plan: their verifiers, and what a pass may leave to the next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import pytest
from scheduler_builder import CPU_LIKE, Builder, assert_same, verify_stage

from litz_ir.device import CPU
from litz_ir.errors import VerifyError
from litz_ir.loops import LoopGraph
from litz_ir.passes import PassContext
from litz_ir.plan import Launch
from litz_ir.verifier import verify
from litz_scheduler import schedule
from litz_scheduler.build_plan import PlanMemory, UnnamedSteps, UnplacedPlan
from litz_scheduler.build_plan.forms import UnnamedLaunch

T = TypeVar("T")


def graph() -> LoopGraph:
    """Matmuls and their sums, for which another order than eager's needs less memory."""
    b = Builder()
    x = b.input(64, 64)
    results = [b.mm(x, b.input(64, 64)) for _ in range(4)]
    return b.build(*(b.sum(result, 0, 1) for result in results))


def form_of(kind: type[T], name: str) -> T:
    """The output of the pass of this name for the graph."""
    found: dict[str, Any] = {}

    def hook(passed: str, before: object, after: object) -> None:
        found[passed] = after

    schedule(graph(), PassContext({CPU: CPU_LIKE}), hooks=(verify_stage, hook))
    assert isinstance(found[name], kind)
    return found[name]


def launch_of(data: UnplacedPlan) -> Launch:
    return next(step for step in data.steps if isinstance(step, Launch))


def test_steps_without_names_need_items_for_each_group_and_buffers_for_each_parameter() -> None:
    data = form_of(UnnamedSteps, "build-steps")
    with pytest.raises(VerifyError, match=r"steps\.groups"):
        verify(replace(data, groups=data.groups[1:]))
    launch = next(item for group in data.groups for item in group if isinstance(item, UnnamedLaunch))
    for buffers, check in ((launch.buffers[1:], "launch"), (("nowhere", *launch.buffers[1:]), "buffers")):
        with pytest.raises(VerifyError, match=rf"steps\.{check}"):
            verify(replace(data, first=(replace(launch, buffers=buffers),)))


def test_steps_without_memory_need_their_kernels_their_buffers_and_groups_that_follow_one_another() -> None:
    data = form_of(UnplacedPlan, "name-kernels")
    with pytest.raises(VerifyError, match=r"steps\.kernel"):
        verify(replace(data, kernels={}))
    with pytest.raises(VerifyError, match=r"steps\.groups"):
        verify(replace(data, groups=data.groups[::-1]))
    with pytest.raises(VerifyError, match=r"steps\.buffers"):
        verify(replace(data, placements={}))
    short = replace(launch_of(data), buffers=launch_of(data).buffers[1:])
    steps = tuple(short if step == launch_of(data) else step for step in data.steps)
    with pytest.raises(VerifyError, match=r"steps\.launch"):
        verify(replace(data, steps=steps))


def test_steps_that_no_pass_has_modelled_are_placed_in_the_end() -> None:
    data = form_of(UnplacedPlan, "name-kernels")
    assert data.memory is None
    context = PassContext({CPU: CPU_LIKE})
    in_eager_s_order = PlanMemory().apply(data, context)
    verify(in_eager_s_order)
    assert_same(graph(), in_eager_s_order)
    ordered = form_of(UnplacedPlan, "order-steps")
    assert ordered.memory is not None
    assert PlanMemory().apply(ordered, context).peak < in_eager_s_order.peak
