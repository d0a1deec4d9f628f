"""Differences of plans of one graph, as data and as text."""

from __future__ import annotations

from dataclasses import replace

from scheduler_builder import CPU_LIKE, plan_of

from litz_ir.builder import GraphBuilder
from litz_ir.dtypes import f32
from litz_ir.loops import LoopGraph
from litz_scheduler import SchedulerOptions, diff


def softmax(called: bool = False) -> LoopGraph:
    g = GraphBuilder("softmax")
    x = g.input("x", f32, (8, 40))
    e = g.exp(x - g.max(x, axis=-1, keepdims=True))
    o = e / g.sum(e, axis=-1, keepdims=True)
    return g.build(g.call("aten.mm.default", o, o.transpose(), dtype=f32, shape=(8, 8)) if called else o)


def test_equal_plans_do_not_differ() -> None:
    difference = diff(plan_of(softmax()), plan_of(softmax()))
    assert not difference
    assert difference.to_text() == ""


def test_names_of_kernels_do_not_count() -> None:
    plan = plan_of(softmax())
    (kernel,) = plan.kernels
    steps = tuple(replace(s, kernel="other") if hasattr(s, "kernel") else s for s in plan.steps)
    renamed = replace(plan, kernels=(replace(kernel, name="other"),), steps=steps)
    assert not diff(plan, renamed)


def test_kernels_that_are_fused_otherwise() -> None:
    fused, apart = plan_of(softmax()), plan_of(softmax(), options=SchedulerOptions(fuse=False))
    difference = diff(fused, apart)
    assert difference
    assert difference.launches == (1, 4)
    assert [len(each) for each in difference.removed] == [5], (
        "subtraction and exponential are inlined in both"
    )
    assert len(difference.added) == 4
    text = difference.to_text()
    assert text.startswith("launches: 1 -> 4\n")
    assert "- kernel of " in text and "+ kernel of " in text
    assert "- fusion: fuse" in text
    backwards = diff(apart, fused)
    assert (backwards.removed, backwards.added) == (difference.added, difference.removed)


def test_a_kernel_with_another_schedule_is_shown_as_a_change_of_its_text() -> None:
    first = plan_of(softmax())
    second = plan_of(softmax(), machine=replace(CPU_LIKE, scratch_bytes=0))
    difference = diff(first, second)
    (change,) = difference.changed
    assert change.operations and (difference.removed, difference.added) == ((), ())
    text = change.to_text()
    assert "\n-" in text and "\n+" in text
    assert f"kernel of {', '.join(change.operations)}:" in difference.to_text()


def test_calls_and_peaks() -> None:
    difference = diff(plan_of(softmax()), plan_of(softmax(called=True)))
    assert difference.added_calls == ("aten.mm.default",)
    assert "+ call of aten.mm.default" in difference.to_text()
    assert difference.peak[0] != difference.peak[1]
    assert f"peak: {difference.peak[0]} B -> {difference.peak[1]} B" in difference.to_text()
