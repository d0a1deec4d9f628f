"""Every kind of reduction that combines elements, divided among threads and SMs, and over one element."""

from __future__ import annotations

import pytest
from scheduler_builder import CPU_LIKE, GPU_LIKE, assert_same, plan_of

from litz_ir.dtypes import DType, f32, i64
from litz_ir.errors import DTypeError
from litz_ir.loops import REDUCTION_KINDS, LoopGraph, ReductionKind
from litz_ir.plan import Accumulate
from litz_ir.target import Capabilities
from litz_ir.text import parse_graph
from litz_scheduler import SchedulerOptions

ROWS = 3
KINDS = {kind.name: kind for kind in REDUCTION_KINDS.values() if kind.combines}
OPTIONS = SchedulerOptions(cpu_split_bytes=4, gpu_split_bytes=16)


def element_dtypes(kind: ReductionKind) -> tuple[DType, ...]:
    """Dtypes that a kind accepts."""
    for dtypes in ((f32,), (i64,), (f32, f32), (f32, i64)):
        if len(dtypes) == kind.inputs:
            try:
                kind.definition(dtypes)
            except DTypeError:
                continue
            return dtypes
    raise AssertionError(f"{kind.name} accepts none of them")


def graph_of(kind: ReductionKind, length: int, *, scans: bool = False) -> LoopGraph:
    """All results of rows that are reduced or scanned; the input ``k`` has the value ``k`` of every element."""
    dtypes = element_dtypes(kind)
    shape, loop = f"{ROWS}", f"reduce.{kind.name} [i0: {ROWS} | r0: {length}]"
    if scans:
        shape, loop = f"{ROWS}, {length}", f"scan.{kind.name} dimension 1 [i0: {ROWS} | r0: {length}]"
    inputs = ", ".join(f"%x{k}: {dtype}[{ROWS}, {length}] fixed" for k, dtype in enumerate(dtypes))
    results = kind.definition(dtypes).dtypes
    names = ", ".join(f"%a{k}" for k, _ in enumerate(results))
    types = ", ".join(f"{dtype}[{shape}] fixed" for dtype in results)
    elements = ", ".join(f"%x{k}[i0, r0]" for k, _ in enumerate(dtypes))
    return parse_graph(
        f"graph g({inputs}) -> ({names}) {{\n  {names} = {loop} -> {types} {{ {elements} }}\n}}"
    )


@pytest.mark.parametrize("machine", [CPU_LIKE, GPU_LIKE], ids=lambda machine: machine.name)
@pytest.mark.parametrize("name", KINDS)
def test_a_long_reduction_is_divided(name: str, machine: Capabilities) -> None:
    graph = graph_of(KINDS[name], 640)
    plan = plan_of(graph, machine, OPTIONS)
    assert "split.threads" in [each.reason.key for each in plan.decisions]
    assert_same(graph, plan)


@pytest.mark.parametrize("name", KINDS)
def test_one_element_is_its_initial_state(name: str) -> None:
    graph = graph_of(KINDS[name], 1)
    plan = plan_of(graph)
    phases = [phase for kernel in plan.kernels for phase in kernel.phases]
    assert not any(isinstance(each, Accumulate) for phase in phases for each in phase.statements)
    assert_same(graph, plan)


def test_results_of_one_element_that_are_constant_along_an_axis() -> None:
    graph = parse_graph("""
        graph g(%x: f32[3, 1] fixed, %y: f32[1, 4] fixed) -> (%top, %total, %weighted) {
          %top, %total, %weighted = reduce.softmax_sum [i: 3, j: 4 | r: 1]
            -> f32[3, 1] fixed, f32[3, 1] fixed, f32[3, 4] fixed { %x[i, r], %y[r, j] }
        }""")
    assert_same(graph, plan_of(graph))


@pytest.mark.parametrize("name", KINDS)
def test_a_long_scan_is_divided_if_it_scans_states(name: str) -> None:
    kind = KINDS[name]
    graph = graph_of(kind, 640, scans=True)
    plan = plan_of(graph, GPU_LIKE, OPTIONS)
    one_state = kind.merges_states and kind.definition(element_dtypes(kind)).dtypes == element_dtypes(kind)
    divided = "split.threads" in [each.reason.key for each in plan.decisions]
    assert divided == (one_state and kind.results == 1)
    assert_same(graph, plan)
