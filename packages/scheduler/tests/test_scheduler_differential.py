"""Differential tests: a plan computes what its loop graph computes, whatever the scheduler decides."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from scheduler_builder import (
    CPU_LIKE,
    CRAMPED,
    GPU_LIKE,
    MACHINES,
    Builder,
    assert_same,
    plan_of,
    run_both,
    with_numbers,
)
from scheduler_strategies import loop_graphs

from litz_ir.dtypes import f32, f64, i64
from litz_ir.loops import LayoutRequirement, LoopGraph, Ref, Value
from litz_ir.plan import CallStep, Launch
from litz_ir.scalar import Scalar, cast, op
from litz_ir.target import Capabilities
from litz_ir.text import parse_graph
from litz_scheduler import SchedulerOptions


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
@settings(max_examples=110)
@given(graph=loop_graphs(steps=10))
def test_random_graphs_with_static_sizes(machine: Capabilities, graph: LoopGraph) -> None:
    assert_same(graph, plan_of(graph, machine))


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
@settings(max_examples=50)
@given(graph=loop_graphs(symbolic=True, steps=8))
def test_random_graphs_with_a_symbolic_size(machine: Capabilities, graph: LoopGraph) -> None:
    plan = plan_of(graph, machine)
    for size in (1, 2, 5):
        assert_same(graph, plan, {"s0": size})


@settings(max_examples=60)
@given(graph=loop_graphs(steps=8))
def test_random_graphs_without_fusion(graph: LoopGraph) -> None:
    plan = plan_of(graph, CPU_LIKE, SchedulerOptions(fuse=False))
    assert_same(graph, plan)


@settings(max_examples=100)
@given(graph=loop_graphs(steps=8))
def test_random_graphs_with_reductions_in_two_steps(graph: LoopGraph) -> None:
    assert_same(
        graph, plan_of(graph, with_numbers(CPU_LIKE, threads=64), SchedulerOptions(cpu_split_bytes=4))
    )


@settings(max_examples=150)
@given(graph=loop_graphs(steps=8))
def test_random_graphs_on_a_gpu_with_little_cache(graph: LoopGraph) -> None:
    """Reductions are split over SMs, and dependent reductions are computed online."""
    options = SchedulerOptions(gpu_split_bytes=4, long_row=1, tall_column=1)
    assert_same(graph, plan_of(graph, GPU_LIKE, options))
    assert_same(graph, plan_of(graph, with_numbers(GPU_LIKE, max_cluster_size=8, l2_bytes=0), options))


@settings(max_examples=100)
@given(graph=loop_graphs(steps=10))
def test_random_graphs_with_donated_inputs(graph: LoopGraph) -> None:
    written = {value.replaces for operation in graph.operations for value in operation.results}
    free = tuple(v.name for v in graph.inputs if isinstance(v, Value) and v.name not in written)
    donating = replace(graph, donated=free)
    plan = plan_of(donating)
    assert set(plan.donated) <= set(free)
    assert plan.peak <= plan_of(graph).peak
    assert_same(donating, plan)


@settings(max_examples=40)
@given(graph=loop_graphs(steps=8))
def test_scheduling_is_deterministic(graph: LoopGraph) -> None:
    assert plan_of(graph) == plan_of(graph)


@settings(max_examples=60)
@given(graph=loop_graphs(steps=8))
def test_returned_strides_are_those_promised(graph: LoopGraph) -> None:
    _, found, _, _ = run_both(graph, plan_of(graph))
    types = {name: value.type for name, value in graph.values().items()}
    for output, array in zip(graph.outputs, found, strict=True):
        assert isinstance(output, Ref)
        promised = types[output.name].layout.strides
        kept = [d for d, size in enumerate(array.shape) if size > 1]
        if array.size:
            assert [array.strides[d] // array.itemsize for d in kept] == [promised[d] for d in kept]


def test_overwriting_with_other_points_of_itself_copies_first() -> None:
    b = Builder()
    x = b.input(6, 4)
    b.copy_(x, b.flip(x, 0))
    for machine in MACHINES:
        graph = b.build()
        assert_same(graph, plan_of(graph, machine), exact=True)


def test_a_view_taken_before_a_mutation_keeps_the_old_elements() -> None:
    b = Builder()
    x = b.input(6, 4)
    old = b.slice(x, 0, 1, 5)
    b.copy_(x, b.scale(x, 2.0))
    graph = b.build(b.op("exp", old), old)
    for machine in (CPU_LIKE, GPU_LIKE, CRAMPED):
        assert_same(graph, plan_of(graph, machine), exact=True)


def test_a_call_that_overwrites_waits_for_readers_of_views() -> None:
    b = Builder()
    x = b.input(4, 4)
    matmul = b.mm(b.permute(x, 1, 0), x)
    filled = b.fill_(x, 0.5)
    graph = b.build(b.op("exp", matmul), b.op("neg", filled))
    for machine in MACHINES:
        assert_same(graph, plan_of(graph, machine), exact=True)


def test_two_versions_in_a_row() -> None:
    b = Builder()
    x, y = b.input(5), b.input(5)
    first = b.copy_(x, b.op("add", x, y))
    second = b.copy_(first, y)
    graph = b.build(b.op("exp", second))
    for machine in MACHINES:
        assert_same(graph, plan_of(graph, machine), exact=True)


def test_a_swap_reads_both_before_it_writes() -> None:
    b = Builder()
    x, y = b.input(5), b.input(5)
    a, c = b.scale(x, 2.0), b.scale(y, 0.5)
    b.copy_(x, c)
    b.copy_(y, a)
    graph = b.build()
    for machine in MACHINES:
        assert_same(graph, plan_of(graph, machine), exact=True)


def test_a_gather_whose_axes_are_reordered_renames_each_axis_once() -> None:
    b = Builder()
    table, rows = b.input(6, 4, 3, strides=(1, 6, 24)), b.input(6, dtype=i64)
    graph = b.build(b.gather(table, rows))
    for machine in MACHINES:
        assert_same(graph, plan_of(graph, machine), exact=True)


def test_a_scatter_that_reads_its_base_elsewhere_does_not_run_in_place() -> None:
    b = Builder()
    x = b.input(6)
    base = b.op("exp", x)
    made = b.scatter(base, b.flip(base, 0), lambda a: a, "add")
    graph = b.build(made)
    for machine in MACHINES:
        assert_same(graph, plan_of(graph, machine))


@pytest.mark.parametrize("need, copies", [("any", 0), ("exact", 0), ("dense", 1)])
def test_a_call_gets_the_layout_that_it_needs(need: LayoutRequirement, copies: int) -> None:
    b = Builder()
    x, w = b.input(8, 6), b.input(6, 4)
    graph = b.build(b.mm(b.slice(x, 0, 0, 8, 2), b.permute(b.permute(w, 1, 0), 1, 0), need))
    plan = plan_of(graph)
    assert_same(graph, plan, exact=True)
    assert sum(isinstance(step, Launch) for step in plan.steps) == copies


def test_sizes_that_a_call_decides_are_known_before_they_are_used() -> None:
    b = Builder()
    x = b.input(12)
    found = b.positives(x)
    doubled = b.scale(found, 2.0)
    graph = b.build(doubled, b.sum(b.op("mul", doubled, found), 0))
    for machine in MACHINES:
        plan = plan_of(graph, machine)
        for seed in range(3):
            assert_same(graph, plan, seed=seed)


def test_host_scalars_are_defined_between_their_producers_and_readers() -> None:
    b = Builder()
    x, y = b.input(8), b.input(8)
    top = b.max(x, 0, keepdim=False)
    b.check(top)
    name = b.host_scalar(top)
    scaled = b.pointwise(lambda a: op("mul", a, cast(Scalar(name, f64), f32)), y)
    graph = b.build(b.op("add", scaled, x))
    for machine in MACHINES:
        assert_same(graph, plan_of(graph, machine), exact=True)


def test_matmuls_by_another_routine() -> None:
    graph = parse_graph(
        """
graph matmuls(%x: f32[12, 6] fixed, %w: f32[10, 6] fixed, %b: f32[10] fixed, %m: f32[10, 8] fixed) -> (%o, %p, %w1) {
  %transposed = view f32[i0: 6, i1: 10] { %w[i1, i0] }
  %o = contraction.matmul aten.addmm.default(%b, %x, %transposed) -> f32[12, 10] fixed flops 1440
  %p = contraction.matmul aten.mm.default(%o, %m) -> f32[12, 8] fixed flops 1920
  %doubled = pointwise f32[i0: 10, i1: 6] { %w[i0, i1] * 2.0 }
  %w1 replaces %w = mutate %w with %doubled -> f32[10, 6] fixed
}
"""
    )
    plan = plan_of(graph, CPU_LIKE, SchedulerOptions(linear_flops=1))
    assert [step.target for step in plan.steps if isinstance(step, CallStep)] == ["linear", "linear"]
    assert_same(graph, plan, exact=True)
