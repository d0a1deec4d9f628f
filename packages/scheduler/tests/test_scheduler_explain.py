"""Reports of plans: kernels with their origins, calls, storages and decisions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given, settings
from scheduler_builder import CPU_LIKE, Builder, plan_of
from scheduler_strategies import loop_graphs

from litz_ir.loops import LoopGraph
from litz_ir.origin import Origin
from litz_ir.plan import CallStep, Launch
from litz_scheduler import explain_plan, reasons


def example() -> LoopGraph:
    b = Builder("block")
    x, w = b.input(64, 48), b.input(48, 48)
    matmul = b.mm(x, w)
    powers = b.op("exp", b.op("sub", matmul, b.max(matmul, 1)))
    graph = b.build(b.op("div", powers, b.sum(powers, 1)))
    named = [
        replace(o, origin=Origin(f"node_{k}", "aten.op.default", "", "model.py", 10 + k, "y = f(x)"))
        for k, o in enumerate(graph.operations)
    ]
    return graph.with_operations(tuple(named))


def test_the_text_of_a_report(golden: Callable[[str, str], None]) -> None:
    golden("explain.txt", explain_plan(plan_of(example())).to_text())


def test_kernels_name_the_operations_and_lines_that_they_fuse() -> None:
    report = explain_plan(plan_of(example()))
    (launch,) = report.launches
    assert [each.origin.line for each in launch.operations] == [11, 12, 13, 14, 15]
    assert (launch.bytes_read, launch.bytes_written) == (64 * 48 * 4, 64 * 48 * 4)
    assert [axis.size for axis in (*launch.outer, *launch.inner)] == [64, 48]
    (call,) = report.calls
    assert (
        call.target == "aten.mm.default"
        and call.reason == reasons.LIBRARY_NO_TEMPLATE.sentence
        and call.origin.line == 10
    )


def test_kernels_of_operations_that_passes_made_name_the_original_ones() -> None:
    b = Builder("long")
    x = b.input(1 << 20)
    graph = b.build(b.sum(b.op("exp", x), 0))
    named = [
        replace(o, origin=Origin(o.name, "aten.op.default", "", "model.py", 7)) for o in graph.operations
    ]
    report = explain_plan(plan_of(graph.with_operations(tuple(named)), CPU_LIKE))
    names = [operation.name for operation in named]
    assert len(report.launches) == 2, "the sum is split among threads"
    for launch in report.launches:
        assert [each.origin.node for each in launch.operations] == names
        assert {each.origin.line for each in launch.operations} == {7}


@settings(max_examples=60)
@given(graph=loop_graphs(steps=10))
def test_a_report_covers_the_whole_plan(graph: LoopGraph) -> None:
    plan = plan_of(graph, CPU_LIKE)
    report = explain_plan(plan)
    assert len(report.launches) == sum(isinstance(step, Launch) for step in plan.steps)
    assert len(report.calls) == sum(isinstance(step, CallStep) for step in plan.steps)
    assert {launch.kernel for launch in report.launches} == set(report.kernels)
    assert all(storage.buffers for storage in report.storages)
    assert sum(map(len, report.by_stage().values())) == len(plan.decisions)
    assert report.to_text().count("\n") >= len(plan.decisions)
