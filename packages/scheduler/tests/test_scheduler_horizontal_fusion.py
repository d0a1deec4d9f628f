"""Packs: launches of loops over different points that a GPU runs side by side."""

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
    """The loops of each launch."""
    return [len(invocations_of(plan.kernel(launch.kernel))) or 1 for launch in launches(plan)]


def packed(graph: LoopGraph, options: SchedulerOptions | None = None) -> list[int]:
    """The loops of each launch of a graph, whose packs compute what it says."""
    plan = plan_of(graph, MACHINE, options or SchedulerOptions())
    assert_same(graph, plan)
    return loops(plan)


def test_lists_of_many_sizes_are_one_launch(golden: Callable[[str, str], None]) -> None:
    graph = lists_of(Builder(), [40, 32, 5, 48, 7, 40])
    plan = plan_of(graph, MACHINE)
    assert_same(graph, plan)
    assert loops(plan) == [6]
    # One for multiples of 16, one for those of 8, one for the others.
    assert [len(part.invocations) for part in plan.kernels[0].subkernels] == [2, 2, 2]
    golden("packs_of_lists.txt", to_text(plan))


def test_only_what_can_run_side_by_side_is_packed() -> None:
    graph = lists_of(Builder(), [40, 32, 1])
    assert loops(plan_of(graph, GPU_LIKE)) == [1, 1, 1]
    assert packed(graph, SchedulerOptions(isomorphic_fusion_bytes=0)) == [1, 1, 1]
    empty = lists_of(Builder(), [0, 40, 0])
    assert packed(empty) == [3]
    assert packed(empty, SchedulerOptions(isomorphic_fusion_bytes=0)) == [1, 1, 1], (
        "nothing is less than nothing"
    )


def test_sizes_that_are_not_fixed_are_packed() -> None:
    s, t = symbol("s0"), symbol("s1")
    infos = (SymbolInfo("s0", low=0, high=64), SymbolInfo("s1", low=2, high=64, divisor=2))
    graph = lists_of(Builder(symbols=SymbolTable(infos)), [s, mul(s, 3), t, 40])
    plan = plan_of(graph, MACHINE)
    assert loops(plan) == [4]
    for size in (0, 1, 40):
        assert_same(graph, plan, {"s0": size, str(mul(s, 3)): 3 * size, "s1": size + 2 - size % 2})


def test_sizes_of_which_bounds_know_little_are_packed() -> None:
    s = symbol("s0")
    rest = s - s // 2  # at least 1, but each of its terms alone says less
    graph = lists_of(Builder(symbols=SymbolTable((SymbolInfo("s0", low=2, high=64),))), [s, rest, 8])
    plan = plan_of(graph, MACHINE)
    assert loops(plan) == [3]
    for size in (2, 3, 64):
        assert_same(graph, plan, {"s0": size, str(rest): size - size // 2})


def test_a_pack_has_an_end() -> None:
    assert packed(lists_of(Builder(), list(range(1, 41)))) == [16, 16, 8]


def test_small_loops_of_all_kinds_are_packed() -> None:
    b = Builder()
    graph = b.build(b.sum(b.input(16, 48), 0), b.op("exp", b.input(5)), b.sum(b.input(3, 8), 1))
    assert packed(graph) == [3]


def test_larger_loops_are_packed_with_those_that_are_alike() -> None:
    b = Builder()
    graph = b.build(
        *[b.op("exp", b.input(size)) for size in (64, 4096, 8192, 1024)],
        *[b.op("neg", b.input(size)) for size in (2048, 48)],
    )
    assert packed(
        graph,
        SchedulerOptions(horizontal_fusion_bytes=1024, isomorphic_fusion_bytes=1 << 16, foreach_bytes=0),
    ) == [4, 2]
    assert packed(
        graph,
        SchedulerOptions(horizontal_fusion_bytes=1024, isomorphic_fusion_bytes=1 << 14, foreach_bytes=0),
    ) == [
        2,
        1,
        1,
        2,
    ]


def test_loops_of_few_kinds_are_packed() -> None:
    b = Builder()
    names = ("exp", "neg", "sqrt", "log", "tanh", "abs", "sin", "cos", "floor", "ceil")
    graph = b.build(*[b.op(name, b.input(30)) for name in names])
    assert packed(graph) == [8, 2]


def test_what_a_loop_waits_for_runs_before_it() -> None:
    b = Builder()
    x, y = b.input(16, 16), b.input(24)
    first = b.op("exp", x)
    second = b.op("sub", first, b.flip(first, 0))
    third = b.op("sub", second, b.flip(second, 1))
    graph = b.build(first, second, third, b.op("exp", y), b.op("neg", b.input(7)))
    # Those that wait for nothing join the first one.
    assert packed(graph) == [3, 1, 1]


def test_a_write_waits_for_those_that_read_what_was_there() -> None:
    b = Builder()
    x = b.input(16, 16)
    turned = b.op("exp", b.flip(x, 0))
    b.copy_(x, b.scale(b.input(16, 16), 2.0))
    graph = b.build(turned)
    plan = plan_of(graph, MACHINE)
    assert_same(graph, plan)
    assert loops(plan) == [1, 1]


def test_a_call_ends_a_pack() -> None:
    b = Builder()
    x, y, w = b.input(16, 16), b.input(24), b.input(16, 16)
    first = b.op("exp", x)
    assert packed(b.build(first, b.mm(x, w), b.op("neg", y))) == [1, 1]


COPIES = """
kernel copies(in %p0: f32, out %p1: f32, in %p2: f32, out %p3: f32) {
  kernel part0(in %p0: f32, out %p1: f32) {
    outer [i0: 8]
    phase [] { %p1[i0] = %p0[i0]; }
  }
    invoke (%p0, %p1)
    invoke (%p2, %p3)
}
"""


def test_a_result_lies_over_what_its_own_loop_alone_reads() -> None:
    found = InPlaceReuse(parse_kernel(COPIES), threads=True)
    assert found.allows(["a", "b", "c", "d"], "a", "b") and found.allows(["a", "b", "c", "d"], "c", "d")
    assert not found.allows(["a", "b", "c", "d"], "a", "d")
    assert not found.allows(["a", "b", "a", "d"], "a", "b")


def temporaries(b: Builder, count: int, side: int = 64) -> list[str]:
    """The sums of so many tensors that are in memory for them alone."""
    found = []
    for _ in range(count):
        wide = b.op("exp", b.input(side, side))
        found.append(b.sum(b.op("mul", wide, b.flip(wide, 0)), 0))
    return found


TIGHT = SchedulerOptions(inline_cost=0, horizontal_fusion_bytes=1 << 14, horizontal_fusion_peak=0)
"""Maps of 64 by 64 points are not small, and no byte is spent on packs."""


def refused(plan: Plan) -> list[str]:
    """What stays apart for the sake of memory."""
    return [each.subject for each in plan.decisions if each.reason == "refuse.peak"]


def test_loops_that_hold_much_at_once_stay_apart() -> None:
    """Side by side, both temporaries would be there at a time."""
    b = Builder()
    graph = b.build(*temporaries(b, 2))
    options = replace(TIGHT, foreach_bytes=0)
    alone, plan = plan_of(graph, GPU_LIKE, options), plan_of(graph, MACHINE, options)
    assert_same(graph, plan)
    assert plan.peak == alone.peak and loops(plan) == [1, 1, 1, 1]
    assert loops(plan_of(graph, MACHINE, replace(options, horizontal_fusion_peak=1 << 14))) == [2, 2]


def test_what_holds_no_more_is_packed_beside_what_does() -> None:
    b = Builder()
    small = [b.scale(b.input(size), 2.0) for size in (40, 32, 5)]
    wide = temporaries(b, 3)
    w = b.input(8, 8)
    product = b.mm(w, w)
    graph = b.build(*small, *wide, product, *[b.op("sin", b.input(size)) for size in (7, 12)])
    plan = plan_of(graph, MACHINE, replace(TIGHT, foreach_bytes=0))
    assert_same(graph, plan)
    assert plan.peak <= plan_of(graph, GPU_LIKE, replace(TIGHT, foreach_bytes=0)).peak
    assert loops(plan)[0] == 3 and loops(plan)[-1] == 2 and len(refused(plan)) >= 2
    text = explain_plan(plan).to_text()
    assert "loops side by side would hold more memory at once" in text and "B as separate launches" in text


def test_only_the_largest_loops_stay_apart() -> None:
    b = Builder()
    made = []
    for side in (64, 24, 64, 20, 64, 16):
        made += temporaries(b, 1, side)
    graph = b.build(*made)
    options = replace(TIGHT, foreach_bytes=0, horizontal_fusion_peak=8192)
    plan = plan_of(graph, MACHINE, options)
    assert_same(graph, plan)
    assert plan.peak <= plan_of(graph, GPU_LIKE, options).peak + options.horizontal_fusion_peak
    # Two of the three largest, and what sums these, run by themselves.
    assert loops(plan) == [4, 1, 3, 1, 1, 1, 1]


def test_small_loops_over_the_same_points_hold_what_one_kernel_would() -> None:
    """Without packs, they are one kernel, whatever that holds."""
    b = Builder()
    graph = b.build(*temporaries(b, 3, 24))
    options = SchedulerOptions(inline_cost=0, horizontal_fusion_peak=0)
    merged, plan = plan_of(graph, GPU_LIKE, options), plan_of(graph, MACHINE, options)
    apart = plan_of(graph, GPU_LIKE, replace(options, foreach_bytes=0))
    assert_same(graph, plan)
    assert apart.peak < plan.peak <= merged.peak
    assert len(launches(plan)) <= len(launches(merged)) < len(launches(apart))


def test_a_pack_is_explained() -> None:
    text = explain_plan(plan_of(lists_of(Builder(), [40, 24, 1]), MACHINE)).to_text()
    assert "3 loops side by side" in text
    assert "have nothing to do with one another" in text and "3 loops of 2 kinds" in text


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("exp", "neg", "sum", "copy", "turn")), st.integers(1, 40), st.integers(0, 5)
        ),
        min_size=2,
        max_size=14,
    ),
    st.sampled_from((64, 2048, 1 << 20)),
)
def test_packs_compute_what_the_graph_says(program: list[tuple[str, int, int]], mixed: int) -> None:
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
        elif kind == "turn":
            made.append(b.op("sub", x, b.flip(x, 0)))
        else:
            made.append(b.op(kind, b.input(size) if source > 2 else x))
    graph = b.build(*made[3:])
    plan = plan_of(graph, MACHINE, SchedulerOptions(horizontal_fusion_bytes=mixed))
    assert_same(graph, plan)
    assert len(launches(plan)) <= len(launches(plan_of(graph, GPU_LIKE, SchedulerOptions(foreach_bytes=0))))


@pytest.mark.parametrize("count", [2, 40])
def test_a_shared_input_is_one_parameter(count: int) -> None:
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
def test_packs_hold_no_more_than_they_may(program: list[tuple[str, int, int]], more: int) -> None:
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
    # None is small: each is on its own without packs.
    options = SchedulerOptions(
        inline_cost=0, foreach_bytes=0, horizontal_fusion_bytes=0, horizontal_fusion_peak=more
    )
    plan = plan_of(graph, MACHINE, options)
    assert_same(graph, plan)
    assert plan.peak <= plan_of(graph, GPU_LIKE, options).peak + more
    # Small ones may be packed as if they were one kernel; what they compute is the same.
    assert_same(graph, plan_of(graph, MACHINE, replace(options, horizontal_fusion_bytes=512)))
