"""Look-back scans: long scans in segments, each by a thread block that waits for those before it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scheduler_builder import GPU_LIKE, assert_same, plan_of, with_numbers

from litz_ir.loops import LoopGraph
from litz_ir.plan import Launch, Plan, scan_segment, workspace_words
from litz_ir.target import Capabilities
from litz_ir.text import from_text
from litz_scheduler import SchedulerOptions

MACHINE = replace(with_numbers(GPU_LIKE, sm_count=8), forward_progress=True)
OPTIONS = SchedulerOptions(gpu_split_bytes=64, lookback=64)


def scan(rows: int, length: int, along: int = 1, dtype: str = "f32", kind: str = "sum") -> LoopGraph:
    shape, at = ((rows, length), "i0, r0") if along else ((length, rows), "r0, i0")
    graph = from_text(f"""
    graph running(%x: {dtype}[{shape[0]}, {shape[1]}] fixed) -> (%o) {{
      %o = scan.{kind} dimension {along} {dtype}[i0: {rows} | r0: {length}] fixed {{ %x[{at}] }}
    }}""")
    assert isinstance(graph, LoopGraph)
    return graph


def segments(plan: Plan) -> list[int]:
    return [scan_segment(kernel.schedule) for kernel in plan.kernels]


@pytest.mark.parametrize(
    ("rows", "length", "dtype", "segment"),
    [
        (3, 1000, "f32", 64),
        (3, 1000, "f64", 16),
        (16, 128, "f32", 64),
        (1, 127, "f32", 0),
        (17, 1000, "f32", 0),
    ],
)
def test_few_long_rows_are_scanned_in_segments(rows: int, length: int, dtype: str, segment: int) -> None:
    graph = scan(rows, length, dtype=dtype)
    plan = plan_of(graph, MACHINE, OPTIONS)
    assert set(segments(plan)) == {segment}
    if dtype == "f32":
        assert_same(graph, plan)


def test_a_lookback_scan_has_a_workspace_and_a_reason() -> None:
    plan = plan_of(scan(3, 1000), MACHINE, OPTIONS)
    (kernel,), (launch,) = plan.kernels, (step for step in plan.steps if isinstance(step, Launch))
    names = dict(zip((each.access for each in kernel.parameters), launch.buffers, strict=True))
    workspace = plan.placement(names["workspace"])
    assert workspace.type.shape == (workspace_words(kernel),) and workspace.storage is not None
    assert [each.note for each in plan.decisions if each.reason.key == "scan.lookback"] == [
        "64 points a program"
    ]


@pytest.mark.parametrize("kind", ["max", "prod"])
def test_scans_of_columns_are_split(kind: str) -> None:
    graph = scan(8, 4096, along=0, kind=kind)
    plan = plan_of(graph, MACHINE, OPTIONS)
    assert len(plan.kernels) == 3 and not any(segments(plan))
    assert_same(graph, plan)


@pytest.mark.parametrize(
    ("machine", "options"),
    [(MACHINE, replace(OPTIONS, lookback=0)), (replace(MACHINE, forward_progress=False), OPTIONS)],
)
def test_rows_are_split_where_no_thread_block_may_wait(
    machine: Capabilities, options: SchedulerOptions
) -> None:
    graph = scan(3, 1000)
    plan = plan_of(graph, machine, options)
    assert len(plan.kernels) == 3 and not any(segments(plan))
    assert_same(graph, plan)


def test_lookback_scans_are_on_by_default() -> None:
    assert segments(plan_of(scan(3, 1 << 15), MACHINE)) == [SchedulerOptions().lookback]
