"""Inlining: values that are recomputed by their readers, and values that are materialised."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scheduler_builder import CPU_LIKE, GPU_LIKE, Builder, assert_same, plan_of

from litz_ir.device import CPU
from litz_ir.dtypes import f32
from litz_ir.loops import LoopGraph
from litz_ir.plan import Launch, Plan
from litz_ir.scalar import Expr, const, op
from litz_ir.target import Capabilities, DeviceModel
from litz_scheduler import SchedulerOptions


def launches(plan: Plan) -> list[Launch]:
    return [step for step in plan.steps if isinstance(step, Launch)]


def chained(depth: int, step: Callable[[Builder, str], str]) -> LoopGraph:
    b = Builder()
    value = b.input(16)
    for _ in range(depth):
        value = step(b, value)
    return b.build(value)


def test_a_value_read_at_several_points_does_not_grow_without_bound() -> None:
    graph = chained(30, lambda b, x: b.op("add", x, b.flip(x, 0)))
    plan = plan_of(graph)
    assert sum(len(str(kernel)) for kernel in plan.kernels) < 200_000
    assert_same(graph, plan)


def test_long_chains_do_not_exhaust_the_stack() -> None:
    def step(b: Builder, x: str) -> str:
        return b.pointwise(lambda a: op("minimum", op("add", a, const(1.0, f32)), const(4.0, f32)), x)

    graph = chained(1500, step)
    plan = plan_of(graph, Capabilities("large", CPU, DeviceModel(vector_bytes=64), max_statements=100_000))
    assert len(launches(plan)) == 1
    assert_same(graph, plan, exact=True)


@pytest.mark.parametrize("readers", [2, 7, 8, 20])
def test_a_value_from_indices_alone_is_never_stored(readers: int) -> None:
    b = Builder()
    x = b.input(4, 6)
    numbers = b.iota(4, 6)
    outputs = [
        b.op("exp", b.op("add", x, b.op("mul", numbers, b.scale(x, float(k))))) for k in range(readers)
    ]
    plan = plan_of(b.build(*outputs))
    assert numbers not in dict(plan.buffers)


def heavy(x: Expr) -> Expr:
    return op("exp", op("sin", x))


def test_an_expensive_value_with_two_readers_is_computed_once() -> None:
    b = Builder()
    x, w = b.input(16, 16), b.input(16, 16)
    dear = b.pointwise(heavy, x)
    graph = b.build(b.mm(dear, w), b.op("add", b.flip(dear, 0), w))
    plan = plan_of(graph)
    assert dear in dict(plan.buffers)
    assert_same(graph, plan)


LONG = SchedulerOptions(long_row=128)


def softmax_of(dear: str, b: Builder) -> str:
    """The sum of exponentials of rows, less their maxima."""
    return b.sum(b.op("exp", b.op("sub", dear, b.max(dear, 1))), 1)


@pytest.mark.parametrize("machine", [GPU_LIKE, CPU_LIKE], ids=lambda each: each.name)
@pytest.mark.parametrize("further", ["few", "all", "another sum"])
def test_long_rows_of_an_online_softmax_are_not_stored(further: str, machine: Capabilities) -> None:
    b = Builder()
    dear = b.pointwise(heavy, b.input(4, 512))
    total = softmax_of(dear, b)
    others = {"few": b.slice(dear, 1, 0, 2), "all": b.flip(dear, 0), "another sum": b.sum(dear, 1)}
    kept = [b.op("add", total, others["few"]), *([] if further == "few" else [others[further]])]
    graph = b.build(*kept)
    plan = plan_of(graph, machine, LONG)
    assert (dear in dict(plan.buffers)) == (machine is CPU_LIKE or further != "few")
    assert_same(graph, plan)


@pytest.mark.parametrize("machine", [GPU_LIKE, CPU_LIKE], ids=lambda each: each.name)
@pytest.mark.parametrize(
    ("shape", "fused"),
    [((2, 3, 32, 32), True), ((2, 3, 64, 64), True), ((2, 3, 30, 30), False), ((2, 32, 32, 3), False)],
)
def test_a_gpu_computes_a_scale_of_whole_tiles_in_their_kernel(
    shape: tuple[int, ...], fused: bool, machine: Capabilities
) -> None:
    b = Builder()
    x = b.input(*shape)
    channels = (3, 1, 1) if shape[1] == 3 else (3,)
    scale = b.pointwise(heavy, b.input(*channels))
    graph = b.build(b.op("mul", x, scale))
    plan = plan_of(graph, machine)
    last = shape[-1] == 3
    assert len(launches(plan)) == (1 if (fused or (machine is CPU_LIKE and not last)) else 2)
    assert_same(graph, plan)
