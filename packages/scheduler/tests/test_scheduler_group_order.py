"""The order of groups: any candidate order computes the same results, and one of clearly lower peak is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_builder import CPU_LIKE, Builder, assert_same, plan_of
from scheduler_strategies import loop_graphs

from litz_ir.device import CPU
from litz_ir.fused import FusedGraph
from litz_ir.loops import ContractionCall, LoopGraph
from litz_ir.passes import PassContext, Pipeline
from litz_ir.plan import CallStep, CheckStep, Launch, Plan
from litz_ir.verifier import verify
from litz_scheduler import SchedulerOptions, SchedulingContext, plan_passes, schedule
from litz_scheduler.order.candidates import WorkBlock, depth_first, freeing_first
from litz_scheduler.order.dependencies import dependencies
from litz_scheduler.order.moves import Peak, deferred, relieved

OPTIONS = SchedulerOptions()


def is_order(order: Sequence[int], needs: Sequence[frozenset[int]]) -> bool:
    """True when every block runs once, after what it needs."""
    place = {number: k for k, number in enumerate(order)}
    after = all(place[needed] < place[number] for number in place for needed in needs[number])
    return sorted(order) == list(range(len(needs))) and after


@st.composite
def block_lists(draw: st.DrawFn) -> tuple[list[WorkBlock], dict[str, int], frozenset[str]]:
    names = [f"m{k}" for k in range(draw(st.integers(1, 6)))]
    blocks = []
    for number in range(draw(st.integers(0, 12))):
        needs = draw(st.frozensets(st.integers(0, number - 1), max_size=3)) if number else frozenset()
        blocks.append(WorkBlock(needs, draw(st.frozensets(st.sampled_from(names), max_size=3))))
    sizes = {name: draw(st.integers(0, 100)) for name in names[1:]}
    return blocks, sizes, draw(st.frozensets(st.sampled_from(names)))


@given(given_blocks=block_lists())
def test_candidates_are_orders(given_blocks: tuple[list[WorkBlock], dict[str, int], frozenset[str]]) -> None:
    blocks, sizes, kept = given_blocks
    needs = [block.needs for block in blocks]
    assert is_order(freeing_first(blocks, sizes, kept), needs)
    assert is_order(depth_first(blocks), needs)
    for at in range(len(blocks)):
        for peak in (Peak(at, at, at + 1), Peak(at // 2, at, min(at + 3, len(blocks)))):
            for move in (relieved, deferred):
                moved = move(blocks, range(len(blocks)), peak, sizes, kept, frozenset({"m1"}))
                assert moved is None or is_order(moved, needs)


def test_the_block_that_frees_most_runs_first() -> None:
    free = frozenset[int]()
    blocks = [
        WorkBlock(free, frozenset({"a"})),
        WorkBlock(free, frozenset({"b"})),
        WorkBlock(frozenset({0}), frozenset({"a", "c"})),
        WorkBlock(frozenset({1}), frozenset({"b", "d"})),
    ]
    sizes = {"a": 10, "b": 20, "c": 1, "d": 1}
    assert freeing_first(blocks, sizes, frozenset({"c", "d"})) == (0, 2, 1, 3)
    assert depth_first(blocks) == (0, 2, 1, 3)


def test_a_block_that_frees_memory_runs_before_the_peak() -> None:
    free = frozenset[int]()
    touched = [{"g"}, {"g", "x", "dx"}, {"g", "w", "dw"}, {"dw", "f"}, {"dx", "x"}]
    needs = [free, frozenset({0}), frozenset({0}), frozenset({2}), frozenset({1})]
    blocks = [WorkBlock(need, frozenset(names)) for need, names in zip(needs, touched, strict=True)]
    sizes = {"g": 50, "x": 9, "dx": 9, "w": 30, "dw": 8, "f": 30}
    relieve = partial(relieved, blocks, sizes=sizes, escapes=frozenset({"f", "dx"}))
    peak = Peak(1, 1, 3)
    assert relieve(range(5), peak, donated=frozenset({"w", "x"})) == (0, 2, 1, 3, 4), "its weight is freed"
    assert relieve(range(5), peak, donated=frozenset()) is None, "it would allocate the weight"
    assert relieve(range(5), Peak(4, 4, 5), donated=frozenset({"w"})) is None, "nothing comes after it"


def test_a_view_moves_with_the_block_that_frees_memory() -> None:
    free = frozenset[int]()
    touched = [{"g"}, {"g", "x", "dx"}, set[str](), {"g", "w", "dw"}]
    needs = [free, frozenset({0}), frozenset({0}), frozenset({2})]
    blocks = [WorkBlock(need, frozenset(names)) for need, names in zip(needs, touched, strict=True)]
    sizes = {"g": 50, "x": 9, "dx": 9, "w": 30, "dw": 8}
    given = {"sizes": sizes, "escapes": frozenset({"dw", "dx"}), "donated": frozenset({"w", "x"})}
    assert relieved(blocks, range(4), Peak(1, 1, 3), **given) == (0, 2, 3, 1)
    blocks[3] = replace(blocks[3], needs=frozenset({1, 2}))
    assert relieved(blocks, range(4), Peak(1, 1, 3), **given) is None, "it reads the result of the peak"


def test_a_block_that_allocates_memory_waits_for_the_end_of_the_peak() -> None:
    free = frozenset[int]()
    touched = [{"g"}, {"g", "dw"}, set[str](), {"g", "w", "p"}, {"g", "p", "dx"}, {"dw", "f"}, {"dx"}]
    needs = [free, *map(frozenset, ({0}, {1}, {0}, {3}, {2}, {4}))]
    blocks = [WorkBlock(need, frozenset(names)) for need, names in zip(needs, touched, strict=True)]
    sizes = {"g": 50, "dw": 30, "w": 40, "p": 41, "dx": 9, "f": 60}
    escapes, donated = frozenset({"f", "dx"}), frozenset({"w", "g"})
    defer = partial(deferred, blocks, sizes=sizes, escapes=escapes, donated=donated)
    assert defer(range(7), Peak(3, 3, 6)) == (0, 3, 4, 1, 2, 5, 6), "before its reader, with its view"
    assert defer(range(7), Peak(3, 3, 4)) == (0, 3, 1, 2, 4, 5, 6), "no later than the peak makes necessary"
    assert defer(range(7), Peak(3, 5, 6)) is None, "it is read before the end of the peak"
    sizes["g"] = 0
    assert (
        partial(deferred, blocks, sizes={**sizes, "dw": 0}, escapes=escapes, donated=donated)(
            range(7), Peak(1, 1, 3)
        )
        is None
    ), "it holds nothing"


def test_a_block_waits_whose_arguments_the_peak_reads_too() -> None:
    """The gradient of a weight waits for that of an input, for which the weight is copied."""
    free = frozenset[int]()
    touched = [{"g"}, {"g", "x", "dw"}, {"w"}, {"g", "w", "dx"}, {"dx"}, {"dw", "f"}]
    needs = [free, *map(frozenset, ({0}, (), {0, 2}, {3}, {1}))]
    blocks = [WorkBlock(need, frozenset(names)) for need, names in zip(needs, touched, strict=True)]
    sizes = {"g": 50, "x": 9, "dw": 30, "w": 30, "dx": 9, "f": 60}
    given = {"sizes": sizes, "escapes": frozenset({"f", "dx"}), "donated": frozenset({"x"})}
    assert deferred(blocks, range(6), Peak(3, 3, 4), **given) == (0, 2, 3, 1, 4, 5)
    touched[2].add("x")
    blocks[2] = replace(blocks[2], touches=frozenset(touched[2]))
    sizes["x"] = 31
    assert deferred(blocks, range(6), Peak(3, 3, 4), **given) is None, "its argument is freed before the peak"


def fused_of(graph: LoopGraph) -> FusedGraph:
    """The fused graph of a graph without control flow, just before it becomes a plan."""
    seen: list[FusedGraph] = []

    def hook(name: str, before: object, after: object) -> None:
        if isinstance(after, FusedGraph):
            seen.append(after)

    schedule(graph, PassContext({CPU: CPU_LIKE}), hooks=(hook,))
    return seen[0]


def plan_in_order(fused: FusedGraph, order: Sequence[int]) -> Plan:
    """The plan of the groups in another order, verified at both levels."""
    moved = replace(fused, groups=tuple(fused.groups[number] for number in order))
    verify(moved)

    build = Pipeline[FusedGraph, Plan]("plan", plan_passes(OPTIONS))
    plan = build.apply(moved, SchedulingContext({CPU: CPU_LIKE}))
    verify(plan)
    return plan


@settings(max_examples=80)
@given(graph=loop_graphs(steps=12), data=st.data())
def test_any_order_that_needs_allow_computes_the_same(graph: LoopGraph, data: st.DataObject) -> None:
    fused = fused_of(graph)
    needs = dependencies(fused)
    order: list[int] = []
    while len(order) < len(needs):
        ready = [k for k in range(len(needs)) if k not in order and needs[k] <= set(order)]
        order.append(data.draw(st.sampled_from(ready)))
    assert_same(graph, plan_in_order(fused, order))


def wide(count: int) -> LoopGraph:
    """Matmuls that are all computed before the first of them is summed."""
    b = Builder()
    x = b.input(64, 64)
    matmuls = [b.mm(x, b.input(64, 64)) for _ in range(count)]
    return b.build(*(b.sum(matmul, 0, 1) for matmul in matmuls))


def test_an_order_of_lower_peak_is_chosen() -> None:
    graph = wide(8)
    plan = plan_of(graph)
    [decision] = [d for d in plan.decisions if d.stage == "order"]
    assert (decision.verdict, decision.reason.key) == ("freeing first", "order.peak")
    matrix = 64 * 64 * 4
    assert plan.peak < 2 * matrix and decision.note == f"{8 * matrix + 8 * 64} B in eager's"
    kinds = [type(step) for step in plan.steps if isinstance(step, CallStep | Launch)]
    assert kinds == [CallStep, Launch] * 8
    assert_same(graph, plan)


def test_eager_s_order_stays_where_nothing_is_clearly_better() -> None:
    b = Builder()
    x = b.input(64, 64)
    plan = plan_of(b.build(b.sum(b.mm(x, x), 0), b.mm(x, x)))
    assert [(d.verdict, d.reason.key) for d in plan.decisions if d.stage == "order"] == [
        ("eager", "order.eager")
    ]


def test_effects_visible_after_an_error_stay_in_order() -> None:
    b = Builder()
    x, y = b.input(8, 8), b.input(8, 8)
    before = b.mm(y, y)
    b.copy_(x, b.op("exp", y))
    after = b.mm(before, y)
    b.check(b.reduce("max", after, (0, 1))[0])
    fused = fused_of(b.build(after))
    needs = dependencies(fused)
    kinds = {
        type(fused.graph.named()[g.members[0].operation]).__name__: k for k, g in enumerate(fused.groups)
    }
    operations = [[fused.graph.named()[m.operation] for m in g.members] for g in fused.groups]
    calls = [k for k, members in enumerate(operations) if type(members[0]).__name__ == "ContractionCall"]
    writes = [k for k, ms in enumerate(operations) for m in ms if any(v.replaces == x for v in m.results)]
    assert len(calls) == 2 and len(writes) == 1
    assert calls[0] in needs[writes[0]] and writes[0] in needs[calls[1]]
    assert {*calls[1:], writes[0]} <= needs[kinds["Assert"]]
    assert any(isinstance(step, CheckStep) for step in plan_of(b.build(after)).steps)


def test_operators_of_other_libraries_run_in_eager_s_order() -> None:
    graph = wide(4)
    renamed = (
        replace(each, target="mine.matmul.default") if isinstance(each, ContractionCall) else each
        for each in graph.operations
    )
    fused = fused_of(graph.with_operations(tuple(renamed)))
    named, needs = fused.graph.named(), dependencies(fused)
    calls = [
        k
        for k, group in enumerate(fused.groups)
        if isinstance(named[group.members[0].operation], ContractionCall)
    ]
    assert len(calls) == 4
    assert all(before in needs[after] for before, after in pairwise(calls))
    assert not any(dependencies(fused_of(graph))[k] & {*calls} for k in calls)
