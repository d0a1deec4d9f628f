"""Vertical and horizontal fusion: operations that become one kernel, and operations that must not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from scheduler_builder import CPU_LIKE, CRAMPED, GPU_LIKE, MACHINES, Builder, assert_same, plan_of

from litz_ir.device import CPU
from litz_ir.dtypes import f32, i64
from litz_ir.errors import VerifyError
from litz_ir.loops import LoopGraph
from litz_ir.passes import PassContext
from litz_ir.plan import CallStep, Launch, Plan
from litz_ir.scalar import Expr, Load, const, index, masked, op, where
from litz_ir.symbols import add, symbol
from litz_ir.target import Capabilities, DeviceModel
from litz_ir.verifier import verify
from litz_scheduler import SchedulerOptions
from litz_scheduler.fusion import FusionGroups, HorizontalFusion, VerticalFusion
from litz_scheduler.legality.precedence import Precedence


def launches(plan: Plan) -> list[Launch]:
    return [step for step in plan.steps if isinstance(step, Launch)]


def bytes_moved(plan: Plan) -> int:
    """The bytes that kernels read and write per call, each buffer once per launch."""
    total = 0
    for launch in launches(plan):
        for name in launch.buffers:
            type_ = plan.placement(name).type
            count = type_.dtype.itemsize
            for size in type_.shape:
                assert isinstance(size, int)
                count *= size
            total += count
    return total


def refusals(plan: Plan) -> set[str]:
    return {d.reason.key for d in plan.decisions if d.verdict == "refuse"}


def softmax(b: Builder, x: str, dim: int = 1) -> str:
    powers = b.op("exp", b.op("sub", x, b.max(x, dim)))
    return b.op("div", powers, b.sum(powers, dim))


def layer_norm(b: Builder, x: str, *dims: int) -> str:
    centred = b.op("sub", x, b.scale(b.sum(x, *dims), 1 / 48))
    return b.op("div", centred, b.scale(b.sum(b.op("mul", centred, centred), *dims), 1 / 48, 1.0))


# --- one kernel, everything moved once ------------------------------------------------------------------


def test_softmax_reads_once_and_writes_once() -> None:
    for rows, columns, dim in ((64, 48, 1), (64, 48, 0), (48, 64, 1)):
        b = Builder()
        x = b.input(rows, columns)
        graph = b.build(softmax(b, x, dim))
        for machine in (CPU_LIKE, GPU_LIKE):
            plan = plan_of(graph, machine)
            assert_same(graph, plan)
            assert len(launches(plan)) == 1
            assert bytes_moved(plan) == 2 * rows * columns * 4


def test_softmax_keeps_exponentials_in_scratch_where_there_is_any() -> None:
    b = Builder()
    x = b.input(64, 48)
    graph = b.build(softmax(b, x))
    (kernel,) = plan_of(graph, CPU_LIKE).kernels
    assert [local.size for local in kernel.scratch] == [48]
    assert plan_of(graph, GPU_LIKE).kernels[0].scratch == ()


def rotated_norm(b: Builder, x: str) -> str:
    """A normalised row plus the row with its halves exchanged."""
    columns = b.shape(x)[1]
    assert isinstance(columns, int)
    scaled = b.op("mul", x, b.op("rsqrt", b.scale(b.sum(b.op("mul", x, x), 1), 1 / columns, 1.0)))
    normed = b.op("mul", scaled, b.op("exp", scaled))
    half = columns // 2
    i, j = symbol("i0"), symbol("i1")
    low = op("lt", index(j), const(half, i64))

    def body(a: Expr) -> Expr:
        upper = masked(low, Load(normed, (i, add(j, half)), f32), const(0.0, f32))
        lower = masked(
            op("ge", index(j), const(half, i64)), Load(normed, (i, add(j, -half)), f32), const(0.0, f32)
        )
        return op("add", a, where(low, op("neg", upper), lower))

    return b.pointwise(body, normed)


def test_other_points_of_a_row_are_read_from_scratch() -> None:
    b = Builder()
    graph = b.build(rotated_norm(b, b.input(64, 48)))
    plan = plan_of(graph, CPU_LIKE)
    assert_same(graph, plan)
    (kernel,) = plan.kernels
    assert [array.size for array in kernel.scratch] == [48]
    assert bytes_moved(plan) == 2 * 64 * 48 * 4


@pytest.mark.parametrize("machine", [GPU_LIKE, replace(CPU_LIKE, scratch_bytes=47 * 4)])
def test_rows_without_scratch_are_stored(machine: Capabilities) -> None:
    b = Builder()
    graph = b.build(rotated_norm(b, b.input(64, 48)))
    plan = plan_of(graph, machine)
    assert_same(graph, plan)
    assert len(launches(plan)) == 2


def test_a_row_that_the_graph_returns_is_read_from_memory() -> None:
    b = Builder()
    rotated = rotated_norm(b, b.input(64, 48))
    normed = next(name for name in b.latest[::-1] if name != rotated)
    graph = b.build(rotated, normed)
    plan = plan_of(graph, CPU_LIKE)
    assert_same(graph, plan)
    assert len(launches(plan)) == 1
    assert plan.kernels[0].scratch == ()


def test_layer_norm_with_a_residual_is_one_kernel() -> None:
    b = Builder()
    x, residual, scale = b.input(64, 48), b.input(64, 48), b.input(48)
    total = b.op("add", x, residual)
    graph = b.build(b.op("mul", layer_norm(b, total, 1), scale), total)
    for machine in (CPU_LIKE, GPU_LIKE):
        plan = plan_of(graph, machine)
        assert_same(graph, plan)
        assert len(launches(plan)) == 1
        assert bytes_moved(plan) == (4 * 64 * 48 + 48) * 4


def test_variance_by_welford_and_what_follows_is_one_kernel() -> None:
    b = Builder()
    x = b.input(64, 48)
    mean, spread, _ = b.reduce("welford", x, [1], keepdim=True)
    graph = b.build(b.op("mul", b.op("sub", x, mean), b.op("exp", b.scale(spread, -0.01))))
    plan = plan_of(graph)
    assert_same(graph, plan)
    assert len(launches(plan)) == 1
    assert bytes_moved(plan) == 2 * 64 * 48 * 4


def batch_norm(b: Builder, x: str, scale: str) -> tuple[str, str]:
    mean = b.scale(b.sum(x, 0, 2, 3), 1 / 400)
    centred = b.op("sub", x, mean)
    spread = b.scale(b.sum(b.op("mul", centred, centred), 0, 2, 3), 1 / 400, 1.0)
    return b.op("mul", b.op("div", centred, spread), scale), mean


def test_batch_norm_in_training_reorders_axes_and_updates_its_statistics() -> None:
    b = Builder()
    x, scale, running = b.input(4, 8, 10, 10), b.input(8, 1, 1), b.input(8)
    normalised, mean = batch_norm(b, x, scale)
    b.copy_(running, b.op("add", b.scale(running, 0.5), b.reshape(mean, 8)))
    graph = b.build(normalised)
    plan = plan_of(graph)
    assert_same(graph, plan)
    assert len(launches(plan)) == 1
    assert [axis.size for axis in plan.kernels[0].outer] == [8]
    assert bytes_moved(plan) == (2 * 3200 + 8 + 8) * 4


def test_batch_norm_after_a_pointwise_loop_takes_that_in() -> None:
    b = Builder()
    x, bias, scale = b.input(4, 8, 10, 10), b.input(4, 8, 10, 10), b.input(8, 1, 1)
    normalised, _ = batch_norm(b, b.op("add", x, bias), scale)
    graph = b.build(b.op("maximum", normalised, b.scale(normalised, 0.1)))
    plan = plan_of(graph)
    assert_same(graph, plan)
    assert len(launches(plan)) == 1


def test_the_gradient_of_a_norm_is_one_kernel_by_rows_and_one_by_columns() -> None:
    b = Builder()
    x, gradient, scale = b.input(64, 48), b.input(64, 48), b.input(48)
    scaled = b.op("mul", gradient, scale)
    along, total = b.sum(b.op("mul", scaled, x), 1), b.sum(scaled, 1)
    result = b.op("sub", b.op("sub", scaled, total), b.op("mul", x, along))
    by_column = b.sum(b.op("mul", gradient, x), 0, keepdim=False), b.sum(gradient, 0, keepdim=False)
    graph = b.build(result, *by_column)
    plan = plan_of(graph)
    assert_same(graph, plan)
    assert len(launches(plan)) == 2
    assert bytes_moved(plan) == (3 * 64 * 48 + 48 + 2 * 64 * 48 + 2 * 48) * 4


def test_sums_of_a_square_by_rows_and_by_columns_stay_apart() -> None:
    b = Builder()
    x = b.input(64, 64)
    graph = b.build(b.sum(x, 1), b.sum(x, 0))
    plan = plan_of(graph)
    assert_same(graph, plan)
    assert len(launches(plan)) == 2
    assert "refuse.traffic" in refusals(plan)


def test_lists_of_updates_that_read_one_scale_are_siblings() -> None:
    b = Builder()
    weights, gradients, rate = [b.input(40) for _ in range(8)], [b.input(40) for _ in range(8)], b.input(1)
    for weight, gradient in zip(weights, gradients, strict=True):
        b.copy_(weight, b.pointwise(lambda w, g, r: op("sub", w, op("mul", g, r)), weight, gradient, rate))
    graph = b.build()
    plan = plan_of(graph)
    assert_same(graph, plan)
    assert len(launches(plan)) == 1
    assert not plan.storages
    assert {p.access for p in plan.kernels[0].parameters} == {"in", "inout"}


def test_large_updates_that_read_one_scale_alone_are_not_fused() -> None:
    b = Builder()
    weights, gradients, rate = (
        [b.input(1 << 16) for _ in range(3)],
        [b.input(1 << 16) for _ in range(3)],
        b.input(1),
    )
    for weight, gradient in zip(weights, gradients, strict=True):
        b.copy_(weight, b.pointwise(lambda w, g, r: op("sub", w, op("mul", g, r)), weight, gradient, rate))
    plan = plan_of(b.build())
    assert len(launches(plan)) == 3
    assert len(plan.kernels) == 1
    assert "refuse.traffic" in refusals(plan)


def test_loops_over_the_same_rows_with_different_splits_of_them() -> None:
    b = Builder()
    x = b.input(128, 32)
    first = b.op("exp", x)
    second = b.op("neg", b.reshape(x, 2, 64, 32))
    graph = b.build(first, second)
    plan = plan_of(graph)
    assert_same(graph, plan)
    assert len(launches(plan)) == 1


def test_an_optimiser_step_reads_and_writes_each_state_once() -> None:
    b = Builder()
    weight, gradient, momentum = b.input(1 << 12), b.input(1 << 12), b.input(1 << 12)
    moved = b.op("add", b.scale(momentum, 0.5), gradient)
    b.copy_(momentum, moved)
    b.copy_(weight, b.op("sub", weight, b.scale(moved, 0.25)))
    graph = b.build()
    plan = plan_of(graph)
    assert_same(graph, plan)
    assert len(launches(plan)) == 1
    assert bytes_moved(plan) == 3 * (1 << 12) * 4


def lists_of(b: Builder, sizes: Sequence[int]) -> LoopGraph:
    """A graph of one loop for each of several tensors."""
    return b.build(*[b.scale(b.input(size), 2.0, 1.0) for size in sizes])


def test_lists_of_loops_share_a_launch_on_a_gpu() -> None:
    graph = lists_of(Builder(), [40, 24, 40, 40, 24])
    plan = plan_of(graph, GPU_LIKE)
    assert_same(graph, plan)
    assert len(launches(plan)) == 2
    assert [d.reason.key for d in plan.decisions if d.verdict == "fuse"] == ["fuse.foreach"] * 3
    assert len(launches(plan_of(graph, CPU_LIKE))) == 5
    assert len(launches(plan_of(graph, GPU_LIKE, SchedulerOptions(foreach_bytes=0)))) == 5


def test_small_reductions_share_a_launch_on_a_gpu() -> None:
    b = Builder()
    small, large = [b.input(16, 48) for _ in range(3)], [b.input(1024, 1024) for _ in range(2)]
    graph = b.build(*[b.sum(x, 0) for x in small], *[b.sum(x, 1) for x in large])
    options = SchedulerOptions(gpu_split_bytes=1 << 30)
    plan = plan_of(graph, GPU_LIKE, options)
    assert_same(graph, plan)
    assert len(launches(plan)) == 3


def test_a_foreach_kernel_has_a_limited_size() -> None:
    graph = lists_of(Builder(), [40] * 60)
    plan = plan_of(graph, GPU_LIKE)
    assert_same(graph, plan)
    assert [len(launch.buffers) for launch in launches(plan)] == [48, 48, 24]


def test_dependent_loops_are_not_fused_horizontally() -> None:
    b = Builder()
    first = b.op("exp", b.input(16, 16))
    second = b.op("sub", first, b.flip(first, 0))
    third = b.op("sub", second, b.flip(second, 1))
    graph = b.build(first, second, third, b.op("exp", b.input(16, 16)))
    plan = plan_of(graph, GPU_LIKE)
    assert_same(graph, plan)
    assert len(launches(plan)) == 3


def test_loops_around_a_call_are_not_fused() -> None:
    b = Builder()
    x, y, w = b.input(16, 16), b.input(16, 16), b.input(16, 16)
    first = b.op("exp", x)
    graph = b.build(first, b.mm(x, w), b.op("neg", y))
    plan = plan_of(graph, GPU_LIKE)
    assert_same(graph, plan)
    assert len(launches(plan)) == 2


# --- what must not fuse ------------------------------------------------------------------------------------


def test_a_call_between_two_loops_prevents_fusion() -> None:
    b = Builder()
    x, w = b.input(16, 16), b.input(16, 16)
    first = b.op("exp", x)
    matmul = b.mm(first, w)
    graph = b.build(b.op("add", first, matmul))
    plan = plan_of(graph)
    assert_same(graph, plan)
    kinds = [type(step) for step in plan.steps if isinstance(step, Launch | CallStep)]
    assert kinds == [Launch, CallStep, Launch]
    assert "refuse.order" in refusals(plan)


def test_a_path_through_a_third_group_is_no_cycle() -> None:
    b = Builder()
    x, w = b.input(16, 16), b.input(16, 16)
    a = b.op("exp", x)
    c = b.mm(a, w)
    d = b.op("exp", c)
    e = b.mm(d, w)
    graph = b.build(b.op("add", b.op("add", a, d), e), b.op("neg", a), b.op("neg", d))
    for machine in MACHINES:
        assert_same(graph, plan_of(graph, machine))


def test_a_whole_reduction_leaves_the_loop_that_feeds_it_parallel() -> None:
    b = Builder()
    x = b.input(512, 64)
    first = b.op("exp", x)
    graph = b.build(first, b.sum(first, 0, 1))
    many = Capabilities("many", CPU, DeviceModel(vector_bytes=64, threads=64), scratch_bytes=4096)
    whole = plan_of(graph, many, SchedulerOptions(cpu_split_bytes=1 << 30))
    assert_same(graph, whole)
    assert len(launches(whole)) == 2
    assert "refuse.parallel" in refusals(whole)
    divided = plan_of(graph, many)
    assert_same(graph, divided)
    assert len(launches(divided)) == 3, "the loop, the parts of the reduction, the reduction of the parts"


def test_an_axis_of_two_gets_no_lanes() -> None:
    b = Builder()
    x, y = b.input(512, 2), b.input(512)
    plan = plan_of(b.build(b.op("add", x, b.flip(x, 1)), b.op("exp", y)), CPU_LIKE)
    lanes = [kernel.schedule.vector for kernel in plan.kernels]
    assert lanes.count(None) == 1 and len(lanes) == 2


def test_a_reader_of_other_points_of_a_value_is_not_fused() -> None:
    b = Builder()
    x = b.input(16, 16)
    first = b.op("exp", x)
    graph = b.build(first, b.op("sub", first, b.flip(first, 0)))
    plan = plan_of(graph)
    assert_same(graph, plan)
    assert len(launches(plan)) == 2
    assert "refuse.index" in refusals(plan)


def test_a_reduction_over_other_axes_waits_for_the_first() -> None:
    b = Builder()
    x = b.input(12, 16)
    rows = b.sum(x, 1)
    graph = b.build(b.sum(b.op("mul", x, b.op("exp", b.scale(rows, 0.01))), 0))
    plan = plan_of(graph)
    assert_same(graph, plan)
    assert len(launches(plan)) == 2


def test_a_reader_of_other_points_keeps_a_mutation_out_of_its_group() -> None:
    b = Builder()
    x, y = b.input(16), b.input(16)
    shifted = b.op("add", b.flip(x, 0), y)
    b.copy_(x, b.op("mul", x, y))
    graph = b.build(shifted)
    for machine in MACHINES:
        plan = plan_of(graph, machine)
        assert_same(graph, plan, exact=True)
        assert len(launches(plan)) == 2


def test_nothing_is_computed_again_from_what_was_overwritten() -> None:
    """The exponentials of ``x`` are needed by a second pass over the row, after ``x`` could have been replaced."""
    b = Builder()
    x = b.input(16, 8)
    powers = b.op("exp", b.scale(x, 0.25))
    b.copy_(x, b.op("mul", powers, powers))
    graph = b.build(b.op("div", powers, b.sum(powers, 1)))
    for machine in MACHINES:
        assert_same(graph, plan_of(graph, machine))


def test_a_limit_on_statements_splits_long_bodies() -> None:
    b = Builder()
    x = b.input(16, 16)
    value = x
    for _ in range(40):
        value = b.op("exp", b.op("mul", value, x))
    graph = b.build(value)
    counts = [len(launches(plan_of(graph, machine))) for machine in (CPU_LIKE, CRAMPED)]
    assert counts[0] == 1 < counts[1]
    assert "refuse.size" in refusals(plan_of(graph, CRAMPED))


def test_fusion_can_be_switched_off() -> None:
    b = Builder()
    x = b.input(16, 16)
    graph = b.build(softmax(b, x))
    plan = plan_of(graph, CPU_LIKE, SchedulerOptions(fuse=False))
    assert_same(graph, plan)
    assert len(launches(plan)) == 4


def forced(graph: LoopGraph, **changes: Any) -> Plan:
    """The plan of a graph under forced options, whose results are checked."""
    plan = plan_of(graph, CPU_LIKE, SchedulerOptions(**changes))
    assert_same(graph, plan)
    return plan


def test_sibling_fusion_can_be_forced_or_prevented() -> None:
    b = Builder()
    x = b.input(64, 32)
    graph = b.build(b.op("exp", x), b.op("neg", x))
    assert [len(launches(forced(graph, siblings=count))) for count in (0, 1, 4)] == [2, 1, 1]
    b = Builder()
    x = b.input(32)
    graph = b.build(*(b.op("add", x, b.input(256, 32)) for _ in range(2)))
    assert [len(launches(forced(graph, sibling_bytes=merged))) for merged in (0, 1 << 40)] == [2, 1]


def test_a_short_row_on_a_gpu_is_processed_by_one_thread_block() -> None:
    b = Builder()
    x = b.input(3, 64)
    first = b.op("exp", x)
    graph = b.build(first, b.sum(first, 1))
    options = SchedulerOptions(gpu_split_bytes=1 << 30)
    plan = plan_of(graph, GPU_LIKE, options)
    assert_same(graph, plan)
    assert len(launches(plan)) == 1
    separate = plan_of(graph, GPU_LIKE, replace(options, long_row=63))
    assert len(launches(separate)) == 2


def test_fusion_that_leaves_threads_idle_can_be_forced() -> None:
    b = Builder()
    x = b.input(3, 64)
    first = b.op("exp", x)
    graph = b.build(first, b.sum(first, 1))
    assert [
        len(launches(forced(graph, min_parallel_points=points, cpu_split_bytes=1 << 40))) for points in (2, 0)
    ] == [
        2,
        1,
    ]


def test_the_schedule_of_a_kernel_can_be_forced() -> None:
    b = Builder()
    graph = b.build(b.sum(b.op("exp", b.input(64, 48)), 1))

    def axis(**changes: Any) -> tuple[str | None, int]:
        (kernel,) = forced(graph, **changes).kernels
        lanes = kernel.schedule.vector
        inner = {each.name for phase in kernel.phases for each in phase.axes}
        return (None if lanes is None else "inner" if lanes in inner else "outer"), kernel.schedule.unroll

    assert axis(lanes="inner") == ("inner", 1)
    assert axis(lanes="outer") == ("outer", 1)
    assert axis(lanes="none", unroll=4) == (None, 4)
    assert axis(lanes="best")[0] in ("inner", "outer")


def test_the_storage_class_of_a_value_can_be_forced() -> None:
    b = Builder()
    stored = b.op("exp", b.input(64, 32))
    graph = b.build(b.op("div", stored, b.sum(stored, 1)))
    kept, again = (forced(graph, scratch_cost=cost).kernels[0] for cost in (0, 1 << 40))
    assert (len(kept.scratch), len(again.scratch)) == (1, 0)
    b = Builder()
    stored = b.op("exp", b.input(64, 32))
    graph = b.build(stored, b.op("div", stored, b.sum(stored, 1)))
    read, computed = (forced(graph, reload_cost=cost).kernels for cost in (0, 1 << 40))
    assert read != computed


def test_loops_can_stay_as_they_were_written() -> None:
    b = Builder()
    graph = b.build(b.sum(b.permute(b.input(32, 48), 1, 0), 0, 1))
    assert forced(graph).kernels != forced(graph, order_loops=False).kernels


# --- the form between the passes ------------------------------------------------------------------------


def groups_of(graph: LoopGraph, options: SchedulerOptions) -> FusionGroups:
    """The groups after vertical fusion."""
    return VerticalFusion(options).apply(graph, PassContext({CPU: GPU_LIKE}))


def test_horizontal_fusion_leaves_its_input_as_it_was() -> None:
    b = Builder()
    graph = b.build(*(b.op("exp", b.input(64)) for _ in range(4)))
    groups = groups_of(graph, SchedulerOptions())
    fused = HorizontalFusion(SchedulerOptions()).apply(groups, PassContext({CPU: GPU_LIKE}))
    assert [len(each.candidates) for each in (groups, fused)] == [4, 1]
    assert all(
        len(candidate.members) == len(candidate.reads) == 1 for candidate in groups.candidates.values()
    )
    verify(groups)
    assert HorizontalFusion(SchedulerOptions()).apply(groups, PassContext({CPU: CPU_LIKE})) is groups


def test_groups_that_lack_an_operation_or_run_too_early_are_refused() -> None:
    b = Builder()
    graph = b.build(b.op("exp", b.op("sin", b.input(64))))
    groups = groups_of(graph, SchedulerOptions(fuse=False))
    verify(groups)
    first, second = groups.ordered()
    with pytest.raises(VerifyError, match=r"fusion\.members"):
        verify(replace(groups, candidates={second.number: second}, order=_chain(second.number, 0)))
    first.position, second.position = second.position, first.position
    with pytest.raises(VerifyError, match=r"fusion\.order"):
        verify(replace(groups, order=_chain()))


def _chain(target: int = 0, other: int = 0) -> Precedence:
    """The precedence of two independent groups, or of one merged into the other."""
    order = Precedence()
    order.add()
    order.add()
    if target != other:
        order.merge(target, other)
    return order
