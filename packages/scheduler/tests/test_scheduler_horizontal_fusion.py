"""Horizontal fusion: independent kernels over different points in one launch on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_builder import GPU_LIKE, Builder, assert_same, plan_of

from litz_ir.loops import LoopGraph
from litz_ir.plan import Launch, Plan, invocations_of
from litz_ir.symbols import Size, SymbolInfo, SymbolTable, mul, symbol
from litz_ir.text import parse_kernel, to_text
from litz_scheduler import SchedulerOptions
from litz_scheduler.explain import explain_plan
from litz_scheduler.memory.inplace import InPlaceReuse

MACHINE = replace(GPU_LIKE, max_subkernels=16)


def lists_of(b: Builder, sizes: Sequence[Size]) -> LoopGraph:
    """A graph of one loop for each of several tensors."""
    return b.build(*[b.scale(b.input(size), 2.0, 1.0) for size in sizes])


def launches(plan: Plan) -> list[Launch]:
    return [step for step in plan.steps if isinstance(step, Launch)]


def loops(plan: Plan) -> list[int]:
    """The number of loops of each launch."""
    return [len(invocations_of(plan.kernel(launch.kernel))) or 1 for launch in launches(plan)]


def fused_loops(graph: LoopGraph, options: SchedulerOptions | None = None) -> list[int]:
    """The number of loops of each launch of a graph, whose fused plan computes what the graph computes."""
    plan = plan_of(graph, MACHINE, options or SchedulerOptions())
    assert_same(graph, plan)
    return loops(plan)


def test_lists_of_many_sizes_are_one_launch(golden: Callable[[str, str], None]) -> None:
    graph = lists_of(Builder(), [40, 32, 5, 48, 7, 40])
    plan = plan_of(graph, MACHINE)
    assert_same(graph, plan)
    assert loops(plan) == [6]
    # One subkernel for multiples of 16, one for those of 8, one for the others.
    assert [len(part.invocations) for part in plan.kernels[0].subkernels] == [2, 2, 2]
    golden("horizontal_fusion_of_lists.txt", to_text(plan))


def test_nothing_fuses_without_subkernels_or_bytes() -> None:
    graph = lists_of(Builder(), [40, 32, 1])
    assert loops(plan_of(graph, GPU_LIKE)) == [1, 1, 1]
    assert fused_loops(graph, SchedulerOptions(isomorphic_fusion_bytes=0)) == [1, 1, 1]
    empty = lists_of(Builder(), [0, 40, 0])
    assert fused_loops(empty) == [3]
    assert fused_loops(empty, SchedulerOptions(isomorphic_fusion_bytes=0)) == [1, 1, 1], (
        "a limit of 0 excludes empty loops too"
    )


def test_loops_of_symbolic_sizes_are_fused() -> None:
    s, t = symbol("s0"), symbol("s1")
    infos = (SymbolInfo("s0", low=0, high=64), SymbolInfo("s1", low=2, high=64, divisor=2))
    graph = lists_of(Builder(symbols=SymbolTable(infos)), [s, mul(s, 3), t, 40])
    plan = plan_of(graph, MACHINE)
    assert loops(plan) == [4]
    for size in (0, 1, 40):
        assert_same(graph, plan, {"s0": size, str(mul(s, 3)): 3 * size, "s1": size + 2 - size % 2})


def test_loops_of_sizes_with_loose_bounds_are_fused() -> None:
    s = symbol("s0")
    rest = s - s // 2  # at least 1, but each of its terms alone says less
    graph = lists_of(Builder(symbols=SymbolTable((SymbolInfo("s0", low=2, high=64),))), [s, rest, 8])
    plan = plan_of(graph, MACHINE)
    assert loops(plan) == [3]
    for size in (2, 3, 64):
        assert_same(graph, plan, {"s0": size, str(rest): size - size // 2})


def test_a_launch_has_at_most_max_subkernels() -> None:
    assert fused_loops(lists_of(Builder(), list(range(1, 41)))) == [16, 16, 8]


def test_small_loops_of_all_kinds_are_fused() -> None:
    b = Builder()
    graph = b.build(b.sum(b.input(16, 48), 0), b.op("exp", b.input(5)), b.sum(b.input(3, 8), 1))
    assert fused_loops(graph) == [3]


def test_larger_loops_are_fused_with_isomorphic_ones() -> None:
    b = Builder()
    graph = b.build(
        *[b.op("exp", b.input(size)) for size in (64, 4096, 8192, 1024)],
        *[b.op("neg", b.input(size)) for size in (2048, 48)],
    )
    assert fused_loops(
        graph,
        SchedulerOptions(horizontal_fusion_bytes=1024, isomorphic_fusion_bytes=1 << 16, foreach_bytes=0),
    ) == [4, 2]
    assert fused_loops(
        graph,
        SchedulerOptions(horizontal_fusion_bytes=1024, isomorphic_fusion_bytes=1 << 14, foreach_bytes=0),
    ) == [
        2,
        1,
        1,
        2,
    ]


def test_loops_of_few_kinds_are_fused() -> None:
    b = Builder()
    names = ("exp", "neg", "sqrt", "log", "tanh", "abs", "sin", "cos", "floor", "ceil")
    graph = b.build(*[b.op(name, b.input(30)) for name in names])
    assert fused_loops(graph) == [8, 2]


def test_a_loop_runs_after_its_producers() -> None:
    b = Builder()
    x, y = b.input(16, 16), b.input(24)
    first = b.op("exp", x)
    second = b.op("sub", first, b.flip(first, 0))
    third = b.op("sub", second, b.flip(second, 1))
    graph = b.build(first, second, third, b.op("exp", y), b.op("neg", b.input(7)))
    # Loops without dependencies are fused with the first one.
    assert fused_loops(graph) == [3, 1, 1]


def test_a_mutation_runs_after_readers_of_the_old_version() -> None:
    b = Builder()
    x = b.input(16, 16)
    flipped = b.op("exp", b.flip(x, 0))
    b.copy_(x, b.scale(b.input(16, 16), 2.0))
    graph = b.build(flipped)
    plan = plan_of(graph, MACHINE)
    assert_same(graph, plan)
    assert loops(plan) == [1, 1]


def test_loops_around_a_call_are_not_fused() -> None:
    b = Builder()
    x, y, w = b.input(16, 16), b.input(24), b.input(16, 16)
    first = b.op("exp", x)
    assert fused_loops(b.build(first, b.mm(x, w), b.op("neg", y))) == [1, 1]


COPIES = """
kernel copies(in %p0: f32, out %p1: f32, in %p2: f32, out %p3: f32) {
  kernel subkernel0(in %p0: f32, out %p1: f32) {
    outer [i0: 8]
    phase [] { %p1[i0] = %p0[i0]; }
  }
    invoke (%p0, %p1)
    invoke (%p2, %p3)
}
"""


def test_a_subkernel_reuses_only_its_own_input_in_place() -> None:
    found = InPlaceReuse(parse_kernel(COPIES), threads=True)
    assert found.allows(["a", "b", "c", "d"], "a", "b") and found.allows(["a", "b", "c", "d"], "c", "d")
    assert not found.allows(["a", "b", "c", "d"], "a", "d")
    assert not found.allows(["a", "b", "a", "d"], "a", "b")


def temporaries(b: Builder, count: int, side: int = 64) -> list[str]:
    """Sums of ``count`` tensors, each of which is materialised."""
    found = []
    for _ in range(count):
        wide = b.op("exp", b.input(side, side))
        found.append(b.sum(b.op("mul", wide, b.flip(wide, 0)), 0))
    return found


TIGHT = SchedulerOptions(inline_cost=0, horizontal_fusion_bytes=1 << 14, horizontal_fusion_peak=0)
"""Options under which tensors of 64 by 64 are not small, and horizontal fusion may not raise the peak."""


def refused(plan: Plan) -> list[str]:
    """The launches excluded from fusion for their memory."""
    return [each.subject for each in plan.decisions if each.reason.key == "refuse.peak"]


def test_loops_that_raise_the_peak_are_not_fused() -> None:
    """In one launch, both temporaries would be live at once."""
    b = Builder()
    graph = b.build(*temporaries(b, 2))
    options = replace(TIGHT, foreach_bytes=0)
    alone, plan = plan_of(graph, GPU_LIKE, options), plan_of(graph, MACHINE, options)
    assert_same(graph, plan)
    assert plan.peak == alone.peak and loops(plan) == [1, 1, 1, 1]
    assert loops(plan_of(graph, MACHINE, replace(options, horizontal_fusion_peak=1 << 14))) == [2, 2]


def test_loops_that_do_not_raise_the_peak_are_fused_all_the_same() -> None:
    b = Builder()
    small = [b.scale(b.input(size), 2.0) for size in (40, 32, 5)]
    wide = temporaries(b, 3)
    w = b.input(8, 8)
    matmul = b.mm(w, w)
    graph = b.build(*small, *wide, matmul, *[b.op("sin", b.input(size)) for size in (7, 12)])
    plan = plan_of(graph, MACHINE, replace(TIGHT, foreach_bytes=0))
    assert_same(graph, plan)
    assert plan.peak <= plan_of(graph, GPU_LIKE, replace(TIGHT, foreach_bytes=0)).peak
    assert loops(plan) == [1, 1, 1, 1, 1, 1, 5] and len(refused(plan)) >= 2, "small loops follow the peak"
    text = explain_plan(plan).to_text()
    assert (
        "one launch of the independent kernels would raise the memory peak" in text
        and "B as separate launches" in text
    )


def test_only_the_largest_loops_are_excluded() -> None:
    b = Builder()
    made = []
    for side in (64, 24, 64, 20, 64, 16):
        made += temporaries(b, 1, side)
    graph = b.build(*made)
    options = replace(TIGHT, foreach_bytes=0, horizontal_fusion_peak=8192)
    plan = plan_of(graph, MACHINE, options)
    assert_same(graph, plan)
    assert plan.peak <= plan_of(graph, GPU_LIKE, options).peak + options.horizontal_fusion_peak
    # Two of the three largest, and their sums, have launches of their own.
    assert loops(plan) == [4, 1, 3, 1, 1, 1, 1]


def test_small_loops_over_equal_points_may_have_the_peak_of_one_kernel() -> None:
    """Without horizontal fusion of launches they are one kernel, whatever its peak."""
    b = Builder()
    graph = b.build(*temporaries(b, 3, 24))
    options = SchedulerOptions(inline_cost=0, horizontal_fusion_peak=0)
    merged, plan = plan_of(graph, GPU_LIKE, options), plan_of(graph, MACHINE, options)
    separate = plan_of(graph, GPU_LIKE, replace(options, foreach_bytes=0))
    assert_same(graph, plan)
    assert separate.peak < plan.peak <= merged.peak
    assert len(launches(plan)) <= len(launches(merged)) < len(launches(separate))


def test_a_fused_launch_is_explained() -> None:
    text = explain_plan(plan_of(lists_of(Builder(), [40, 24, 1]), MACHINE)).to_text()
    assert "3 independent loops in one launch" in text
    assert "the kernels are independent" in text and "3 loops of 2 kinds" in text


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("exp", "neg", "sum", "copy", "flip")), st.integers(1, 40), st.integers(0, 5)
        ),
        min_size=2,
        max_size=14,
    ),
    st.sampled_from((64, 2048, 1 << 20)),
)
def test_fused_launches_compute_what_the_graph_computes(
    program: list[tuple[str, int, int]], mixed: int
) -> None:
    b = Builder()
    made = [b.input(3, 4), b.input(8), b.input(5, 2)]
    for kind, size, source in program:
        x = made[source % len(made)]
        if kind == "sum":
            made.append(b.sum(b.input(size, 6), 0))
        elif kind == "copy":
            k = source % 3
            made[k] = b.copy_(made[k], b.scale(made[k], 0.5))
            continue
        elif kind == "flip":
            made.append(b.op("sub", x, b.flip(x, 0)))
        else:
            made.append(b.op(kind, b.input(size) if source > 2 else x))
    graph = b.build(*made[3:])
    plan = plan_of(graph, MACHINE, SchedulerOptions(horizontal_fusion_bytes=mixed))
    assert_same(graph, plan)
    assert len(launches(plan)) <= len(launches(plan_of(graph, GPU_LIKE, SchedulerOptions(foreach_bytes=0))))


@pytest.mark.parametrize("count", [2, 40])
def test_a_common_input_is_one_parameter(count: int) -> None:
    b = Builder()
    scale = b.input(1)
    graph = b.build(*[b.op("mul", b.input(n + 1), scale) for n in range(count)])
    plan = plan_of(graph, MACHINE)
    assert_same(graph, plan)
    (first, *_) = launches(plan)
    assert len(first.buffers) == 2 * min(count, 16) + 1


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from(("wide", "exp", "sum", "call")), st.integers(2, 20), st.integers(0, 7)),
        min_size=3,
        max_size=16,
    ),
    st.sampled_from((0, 256, 2048)),
)
def test_fused_launches_stay_below_the_allowed_peak(program: list[tuple[str, int, int]], more: int) -> None:
    b = Builder()
    made = [b.input(6, 6), b.input(12, 12)]
    for kind, size, source in program:
        x = made[source % len(made)]
        if kind == "wide":
            made += temporaries(b, 1, size)
        elif kind == "call":
            w = b.input(size, size)
            made.append(b.mm(b.op("exp", w), w))
        elif kind == "sum":
            made.append(b.sum(x, 0) if len(b.shape(x)) > 1 else b.op("neg", x))
        else:
            made.append(b.op("exp", b.input(size * size) if source > 4 else x))
    graph = b.build(*made[2:])
    # No loop is small: each has its own launch without horizontal fusion.
    options = SchedulerOptions(
        inline_cost=0, foreach_bytes=0, horizontal_fusion_bytes=0, horizontal_fusion_peak=more
    )
    plan = plan_of(graph, MACHINE, options)
    assert_same(graph, plan)
    assert plan.peak <= plan_of(graph, GPU_LIKE, options).peak + more
    # Small ones may be fused as if they were one kernel, with the same results.
    assert_same(graph, plan_of(graph, MACHINE, replace(options, horizontal_fusion_bytes=512)))
