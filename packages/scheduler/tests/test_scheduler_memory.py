"""Memory planning: no storage holds two live values, outputs have memory of their own, modelled peaks are exact."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given, settings
from scheduler_builder import CPU_LIKE, Builder, assert_same, plan_of
from scheduler_strategies import loop_graphs

from litz_ir.device import Device
from litz_ir.dtypes import f32, f64
from litz_ir.loops import LoopGraph, Ref, tensor_type
from litz_ir.plan import Allocate, CallStep, Free, Launch, Placement, Plan, Step, memory_root, touched_by
from litz_ir.scalar import cast
from litz_ir.text import parse_graph
from litz_scheduler import SchedulerOptions
from litz_scheduler.memory.liveness import last_uses
from litz_scheduler.memory.runs import WAITING_LIMIT, find_runs
from litz_scheduler.memory.storage_layout import REUSE_DISTANCE


def storage_of(plan: Plan, buffer: str) -> str | None:
    """The storage of a buffer, through the values that it shares memory with."""
    placements = dict(plan.buffers)
    return placements[memory_root(buffer, placements)].storage


def written_by(plan: Plan, step: Step) -> Iterator[tuple[str, bool]]:
    """The buffers that a launch writes, each with whether it also reads them."""
    if isinstance(step, Launch):
        for parameter, buffer in zip(plan.kernel(step.kernel).parameters, step.buffers, strict=True):
            if parameter.access != "in":
                yield buffer, parameter.access == "inout"


def check_liveness(plan: Plan) -> None:
    """Walk the steps byte by byte: a write must not land where another value lies that is read later."""
    placements = dict(plan.buffers)
    sizes = {storage.name: int(str(storage.nbytes)) for storage in plan.storages}
    escaping = {memory_root(output.name, placements) for output in plan.outputs if isinstance(output, Ref)}
    last = last_uses(plan.steps, placements)
    holds: dict[str, list[str | None]] = {}
    for position, step in enumerate(plan.steps):
        if isinstance(step, Allocate):
            assert step.storage not in holds
            holds[step.storage] = [None] * sizes[step.storage]
        elif isinstance(step, Free) and step.name in sizes:
            for value in set(holds.pop(step.name)) - {None}:
                assert value not in escaping and last[str(value)] < position, "freed before its last use"
        for buffer in touched_by(step):
            storage = storage_of(plan, buffer)
            assert storage is None or storage in holds, "used while not allocated"
        for buffer, _ in written_by(plan, step):
            owner, storage = memory_root(buffer, placements), storage_of(plan, buffer)
            if storage is None:
                continue
            start = int(str(placements[owner].offset))
            bytes_of_it = slice(start, start + int(str(placements[owner].nbytes)))
            for before in set(holds[storage][bytes_of_it]) - {None, owner}:
                assert before not in escaping, "a returned value is overwritten"
                assert last[str(before)] <= position, "a value that is still wanted is overwritten"
            holds[storage][bytes_of_it] = [owner] * len(holds[storage][bytes_of_it])
    returned = [storage_of(plan, name) for name in sorted(escaping)]
    owned = [storage for storage in returned if storage is not None]
    assert len(owned) == len(set(owned)), "two returned values share memory"
    assert all(storage in holds for storage in owned)


@settings(max_examples=150)
@given(graph=loop_graphs(steps=12))
def test_no_storage_holds_two_live_values(graph: LoopGraph) -> None:
    check_liveness(plan_of(graph))


@settings(max_examples=60)
@given(graph=loop_graphs(steps=12))
def test_no_storage_holds_two_live_values_without_fusion(graph: LoopGraph) -> None:
    check_liveness(plan_of(graph, CPU_LIKE, SchedulerOptions(fuse=False)))


def static_peak(plan: Plan) -> int:
    """The most bytes held at once, counted from the steps."""
    sizes = {storage.name: storage.nbytes for storage in plan.storages}
    placements = dict(plan.buffers)
    live = peak = 0
    for step in plan.steps:
        if isinstance(step, Allocate):
            live += int(str(sizes[step.storage]))
        elif isinstance(step, CallStep):
            live += sum(
                _result_bytes(plan, name) for name in step.results if name and placements[name].base is None
            )
        elif isinstance(step, Free):
            live -= int(str(sizes[step.name])) if step.name in sizes else _result_bytes(plan, step.name)
        peak = max(peak, live)
    return peak


def _result_bytes(plan: Plan, name: str) -> int:
    count = 1
    for size in plan.placement(name).type.shape:
        assert isinstance(size, int)
        count *= size
    return count * plan.placement(name).type.dtype.itemsize


@settings(max_examples=80)
@given(graph=loop_graphs(steps=10))
def test_the_peak_is_what_the_steps_hold(graph: LoopGraph) -> None:
    plan = plan_of(graph)
    assert plan.peak == static_peak(plan)


def softmaxes(b: Builder, x: str, count: int) -> str:
    """Softmaxes over columns and rows alternately: a kernel each, since their spaces differ. Each reads its input
    backwards, which rules out in-place reuse."""
    for k in range(count):
        x = b.flip(x, k % 2)
        powers = b.op("exp", b.op("sub", x, b.max(x, k % 2)))
        x = b.op("div", powers, b.sum(powers, k % 2))
    return x


def test_memory_comes_before_a_run_of_kernels_and_goes_after_it() -> None:
    b = Builder()
    x = b.input(32, 32)
    plan = plan_of(b.build(b.mm(softmaxes(b, x, 4), x)))
    kinds = [type(step) for step in plan.steps]
    launches = kinds.count(Launch)
    start = kinds.index(Launch)
    assert launches >= 4 and kinds[start : start + launches] == [Launch] * launches
    assert set(kinds[:start]) == {Allocate} and kinds[start + launches :].count(Allocate) == 0
    check_liveness(plan)


def test_a_run_ends_where_much_freed_memory_waits_and_more_is_allocated() -> None:
    steps = [Launch("k", ("x",))] * 4 + [Free("x"), Launch("k", ("x",))]
    where = {"x": Placement(tensor_type(f32, 4))}
    assert find_runs(steps, where, {0, 1, 2, 3}, {0: WAITING_LIMIT}).starts == (0, 4, 5)
    assert find_runs(steps, where, {0, 1, 3}, {0: WAITING_LIMIT + 1}).starts == (0, 1, 4, 5)
    assert find_runs(steps, where, {0, 3}, {1: WAITING_LIMIT + 1}).starts == (0, 3, 4, 5)
    assert find_runs(steps, where, {0}, {1: WAITING_LIMIT + 1}).starts == (0, 4, 5)
    assert len(find_runs([], {}, set(), {})) == 0


def test_a_run_ends_where_the_next_kernel_runs_on_another_device() -> None:
    devices = ("cpu", "cpu", "cuda", "cuda", "cuda:1", "cpu")
    where = {name: Placement(tensor_type(f32, 4, device=Device.parse(name))) for name in devices}
    assert find_runs([Launch("k", (name,)) for name in devices], where, set(), {}).starts == (0, 2, 4, 5)


def test_consecutive_kernels_reuse_two_storages() -> None:
    b = Builder()
    x = b.input(64, 64)
    for _ in range(20):
        x = b.op("exp", b.mm(x, x))
    graph = b.build(x)
    plan = plan_of(graph)
    # Results of calls have memory of their own, and exp does not reuse it, so each exp has a storage, reused at once.
    assert len(plan.storages) <= 3
    assert plan.peak <= 4 * 64 * 64 * 4
    check_liveness(plan)


def test_an_input_is_overwritten_in_place_after_its_last_use() -> None:
    b = Builder()
    x, y = b.input(8, 8), b.input(8, 8)
    first = b.op("exp", x)
    matmul = b.mm(first, y)
    second = b.op("add", first, matmul)
    graph = b.build(b.mm(second, y))
    plan = plan_of(graph)
    assert storage_of(plan, second) == storage_of(plan, first)
    assert any(d.reason.key == "memory.inplace" for d in plan.decisions)
    assert_same(graph, plan)


def test_an_output_reuses_memory_of_exactly_its_size() -> None:
    b = Builder()
    x, y = b.input(8, 8), b.input(8, 8)
    first = b.op("exp", x)
    matmul = b.mm(first, y)
    second = b.op("add", matmul, first)
    graph = b.build(second)
    plan = plan_of(graph)
    assert storage_of(plan, second) == storage_of(plan, first)
    assert not any(isinstance(step, Free) and step.name == storage_of(plan, second) for step in plan.steps)
    assert_same(graph, plan)


def test_an_output_reuses_no_memory_rounded_up_to_its_size() -> None:
    b = Builder()
    x, y = b.input(3, 5), b.input(5, 5)
    first = b.op("exp", x)
    matmul = b.mm(first, y)
    part = b.view(first, (2, 5), lambda a: a)
    graph = b.build(b.op("add", b.view(matmul, (2, 5), lambda a: a), part))
    plan = plan_of(graph)
    assert storage_of(plan, graph.outputs[0].name) != storage_of(plan, first)
    assert_same(graph, plan)


def test_a_result_of_a_call_is_not_reused_for_a_larger_value() -> None:
    graph = parse_graph(
        """
graph padded(%x: f32[5, 4] fixed, %w: f32[4, 4] fixed) -> (%q) {
  %o = contraction.matmul aten.mm.default(%x, %w) -> f32[5, 4] fixed flops 160
  %p = pointwise f32[i0: 8, i1: 4] fixed { exp(masked(index(i0) < 5, %o[i0, i1], 0.0)) }
  %q = contraction.matmul aten.mm.default(%p, %w) -> f32[8, 4] fixed flops 256
}
"""
    )
    plan = plan_of(graph, CPU_LIKE, SchedulerOptions(linear_flops=1))
    assert memory_root("p", dict(plan.buffers)) == "p", (
        "80 bytes are no memory for 128, the next multiple of 64"
    )
    check_liveness(plan)
    assert_same(graph, plan)


def test_a_donated_input_is_not_reused_for_a_larger_value() -> None:
    graph = parse_graph(
        """
graph padded(%x: f32[5, 4] fixed, %w: f32[4, 4] fixed) -> (%q) {
  %p = pointwise f32[i0: 9, i1: 4] fixed { exp(masked(index(i0) < 5, %x[i0, i1], 0.0)) }
  %q = contraction.matmul aten.mm.default(%p, %w) -> f32[9, 4] fixed flops 288
}
"""
    )
    plan = plan_of(replace(graph, donated=("x",)), CPU_LIKE, SchedulerOptions(linear_flops=1))
    assert plan.donated == ()
    check_liveness(plan)


def test_a_donated_input_has_bytes_up_to_a_multiple_of_64() -> None:
    graph = parse_graph(
        """
graph padded(%x: f32[5, 4] fixed, %w: f32[4, 4] fixed) -> (%q) {
  %p = pointwise f32[i0: 8, i1: 4] fixed { exp(masked(index(i0) < 5, %x[i0, i1], 0.0)) }
  %q = contraction.matmul aten.mm.default(%p, %w) -> f32[8, 4] fixed flops 256
}
"""
    )
    graph = replace(graph, donated=("x",))
    plan = plan_of(graph, CPU_LIKE, SchedulerOptions(linear_flops=1))
    assert plan.donated == ("x",) and memory_root("p", dict(plan.buffers)) == "x"
    check_liveness(plan)
    assert_same(graph, plan)  # with memory of its own for an array that ends after 80 bytes


def test_a_donated_input_is_reused_after_its_last_use() -> None:
    b = Builder()
    x, y = b.input(8, 8), b.input(8, 8)
    first = b.op("exp", b.mm(x, y))
    second = b.op("add", first, x)
    graph = replace(b.build(b.mm(second, y), b.op("mul", x, b.sum(x, 1))), donated=(x, y))
    plan = plan_of(graph)
    returned = graph.outputs[1]
    assert isinstance(returned, Ref)
    # The sum of a row is read before the row is overwritten. The other input is read by the last matmul.
    assert dict(plan.buffers)[returned.name].base == x
    assert plan.donated == (x,)
    assert plan_of(replace(graph, donated=())).donated == ()
    assert_same(graph, plan)


def test_a_donated_input_that_is_read_otherwise_is_not_reused() -> None:
    b = Builder()
    x = b.input(8, 8)
    backwards, wider = b.op("exp", b.flip(x, 1)), b.pointwise(lambda e: cast(e, f64), x)
    shown = b.permute(x, 1, 0)
    for outputs in ([backwards], [wider], [b.op("exp", x), shown]):
        graph = replace(b.build(*outputs), donated=(x,))
        plan = plan_of(graph)
        assert plan.donated == ()
        assert_same(graph, plan)


def test_an_input_that_the_kernel_also_overwrites_is_not_reused() -> None:
    b = Builder()
    x, y = b.input(4, 4), b.input(4, 4)
    base = b.op("exp", x)
    matmul = b.mm(base, y)
    update = b.op("mul", base, matmul)
    b.copy_(base, b.op("neg", update))
    graph = b.build(b.mm(update, y))
    plan = plan_of(graph)
    assert storage_of(plan, update) != storage_of(plan, base)
    assert_same(graph, plan)


def test_memory_without_a_near_reuse_is_freed() -> None:
    b = Builder()
    x = b.input(8, 8)
    big = b.op("exp", b.expand(x, 50, 8, 8))
    matrix = b.reshape(big, 50 * 8, 8)
    called = b.mm(matrix, x)
    for _ in range(3 * REUSE_DISTANCE):
        called = b.mm(called, x)
    plan = plan_of(b.build(called))
    freed = [step for step in plan.steps if isinstance(step, Free)]
    # The matmul reads the large value as a matrix without a copy of it.
    assert storage_of(plan, matrix) == storage_of(plan, big) == freed[0].name


def test_an_output_and_its_view_share_memory_and_twins_do_not() -> None:
    b = Builder()
    x = b.input(4, 6)
    first, twin = b.op("exp", x), b.op("exp", x)
    plan = plan_of(b.build(first, b.permute(first, 1, 0), twin))
    assert storage_of(plan, "v3") == storage_of(plan, first)
    assert storage_of(plan, twin) != storage_of(plan, first)


def test_a_returned_copy_of_an_input_is_a_copy() -> None:
    b = Builder()
    x = b.input(4, 6)
    copied = b.view(x, (4, 6), lambda a: a, aliases=False)
    plan = plan_of(b.build(copied, b.permute(x, 1, 0)))
    assert storage_of(plan, copied) is not None
    assert storage_of(plan, "v2") is None


def over_a_matmul(outputs: str, body: str = "%o[i0, i1]") -> Plan:
    """The plan of two matmuls with a loop between them, which computes ``body`` from the first one's result."""
    graph = parse_graph(
        f"""
graph over(%x: f32[12, 6] fixed, %w: f32[6, 10] fixed, %m: f32[10, 8] fixed) -> ({outputs}) {{
  %o = contraction.matmul aten.mm.default(%x, %w) -> f32[12, 10] fixed flops 1440
  %r = pointwise f32[i0: 12, i1: 10] {{ exp({body}) }}
  %p = contraction.matmul aten.mm.default(%r, %m) -> f32[12, 8] fixed flops 1920
  %q = pointwise f32[i0: 12, i1: 10] fixed {{ %r[i0, i1] * 2.0 }}
}}
"""
    )
    plan = plan_of(graph, CPU_LIKE, SchedulerOptions(linear_flops=1))
    check_liveness(plan)
    assert_same(graph, plan)
    return plan


def test_a_kernel_reuses_a_routine_s_result_in_place() -> None:
    plan = over_a_matmul("%p, %q")
    assert dict(plan.buffers)["r"].base == "o"
    freed = [step.name for step in plan.steps if isinstance(step, Free)]
    assert freed == ["o"], "freed after the last reader of the value that reuses it"
    last = next(k for k, step in enumerate(plan.steps) if isinstance(step, Free))
    assert all("r" not in touched_by(step) for step in plan.steps[last:])


def capped(outputs: str, columns: int = 10, read: str = "%o[i0 * 3 + i1, i2]") -> Plan:
    """The plan of a matmul whose result, in another shape, is capped and returned."""
    graph = parse_graph(
        f"""
graph capped(%x: f32[12, 6] fixed, %w: f32[6, 10] fixed) -> ({outputs}) {{
  %o = contraction.matmul aten.mm.default(%x, %w) -> f32[12, 10] fixed flops 1440
  %r = pointwise f32[i0: 4, i1: 3, i2: {columns}] fixed {{ tanh({read}) }}
}}
"""
    )
    plan = plan_of(graph, CPU_LIKE, SchedulerOptions(linear_flops=1))
    check_liveness(plan)
    assert_same(graph, plan)
    return plan


def test_an_output_takes_the_memory_of_a_routine_s_result() -> None:
    plan = capped("%r")
    assert dict(plan.buffers)["r"].base == "o" and not plan.storages
    assert not any(isinstance(step, Free) for step in plan.steps), "it is the caller's"
    assert plan.peak == 12 * 10 * 4


def test_an_output_takes_no_routine_s_result_that_is_larger_or_read_otherwise() -> None:
    for plan in (capped("%r, %o"), capped("%r", 9), capped("%r", 10, "%o[11 - i0 * 3 - i1, i2]")):
        assert dict(plan.buffers)["r"].base is None
        assert plan.peak > 12 * 10 * 4


def test_a_routine_s_result_that_is_read_later_is_not_reused() -> None:
    for plan in (over_a_matmul("%p, %q, %o"), over_a_matmul("%p, %q", "%o[11 - i0, i1]")):
        assert dict(plan.buffers)["r"].base is None


# --- arenas ---------------------------------------------------------------------------------------------


def test_values_of_kernels_alone_share_an_arena() -> None:
    b = Builder()
    x = b.input(32, 32)
    last = softmaxes(b, x, 5)
    graph = b.build(b.mm(last, x), b.reduce("sum", b.scan(last, 0), (0,))[0])
    plan = plan_of(graph)
    arena = [d for d in plan.decisions if d.reason.key == "memory.arena"]
    placed = {storage_of(plan, d.subject) for d in arena}
    assert len(arena) >= 4 and len(placed) == 1
    assert storage_of(plan, last) not in placed, "an argument of a call has a storage of its own"
    offsets = {dict(plan.buffers)[d.subject].offset for d in arena}
    assert len(offsets) > 1 and all(int(str(offset)) % 64 == 0 for offset in offsets)
    check_liveness(plan)
    assert_same(graph, plan)


def test_an_arena_that_would_raise_the_peak_is_not_made() -> None:
    b = Builder()
    x, w = b.input(64, 64), b.input(64, 2048)
    # Two values are live across a matmul as large as everything before it: an arena of the graph would stay live.
    early = b.sum(softmaxes(b, x, 4), 1)
    small = softmaxes(b, early, 2)
    wide = b.mm(x, w)
    graph = b.build(b.op("mul", b.sum(wide, 1), small))
    plan = plan_of(graph)
    result = 64 * 2048 * 4
    assert plan.peak <= result + 2 * 64 * 4 + 64 * 4
    check_liveness(plan)
    assert_same(graph, plan)


def test_values_lie_in_a_result_that_is_written_later() -> None:
    b = Builder()
    x = b.input(32, 32)
    last = softmaxes(b, x, 5)
    wide = b.reduce("sum", b.op("mul", b.sum(last, 1), b.input(8, 64, 32)), (2,))[0]
    graph = b.build(b.op("add", wide, b.input(64, 8, 64)))
    plan = plan_of(graph)
    (result,) = plan.outputs
    assert isinstance(result, Ref)
    arena = [d.subject for d in plan.decisions if d.reason.key == "memory.arena"]
    inside = [name for name in arena if storage_of(plan, name) == storage_of(plan, result.name)]
    nbytes = 64 * 8 * 64 * 4
    assert len(inside) >= 4 and plan.peak <= nbytes + 8 * 64 * 4
    placements = dict(plan.buffers)
    ends = [int(str(placements[name].offset)) + int(str(placements[name].nbytes)) for name in inside]
    assert max(ends) <= nbytes, "the caller's tensor ends with its last element"
    check_liveness(plan)
    assert_same(graph, plan)


def test_values_too_large_for_arenas_end_runs() -> None:
    b = Builder()
    x = b.input(2048, 2048)  # 16 MB: an arena holds one of that size
    plan = plan_of(b.build(b.sum(softmaxes(b, x, 6), 0, 1)))
    assert plan.peak <= 4 * 2048 * 2048 * 4
    assert all(int(str(storage.nbytes)) < 32 << 20 for storage in plan.storages)
