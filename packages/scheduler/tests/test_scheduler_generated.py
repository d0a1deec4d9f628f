"""Matmuls as loops: the operations that are fused into their kernels, and those that must not be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scheduler_builder import CPU_LIKE, GPU_LIKE, externs, plan_of, with_numbers

from litz_ir.device import CPU, Device
from litz_ir.dtypes import bf16, f8e4m3fn
from litz_ir.host import Executor
from litz_ir.interp import run_graph
from litz_ir.interp.encoding import encode, storage_dtype
from litz_ir.passes import PassContext
from litz_ir.plan import Accumulate, CallStep, Kernel, Launch, Plan
from litz_ir.text import parse_graph
from litz_scheduler import SchedulerOptions, schedule

EVERY = SchedulerOptions(generated_matmuls=frozenset({"all"}))

HEAD = "graph g(%x: f16[12, 20] fixed, %w: f16[20, 16] fixed, %v: f16[20, 16] fixed, %r: f16[12, 16] fixed"

MATMUL = "  %p = contraction.matmul aten.mm.default(%x, %w) -> f16[12, 16] flops 7680\n"


def planned(body: str, results: str, inputs: str = "") -> Plan:
    """The plan of a graph over ``x``, ``w``, ``v``, ``r`` and further inputs, checked against the reference
    interpreter."""
    graph = parse_graph(f"{HEAD}{inputs}) -> ({results}) {{\n{body}}}\n")
    plan = plan_of(graph, GPU_LIKE, EVERY)
    generator = np.random.default_rng(0)
    given = [np.asarray(generator.integers(-4, 5, value.type.shape) / 4) for value in graph.inputs]
    arrays = [array.astype(storage_dtype(value.type.dtype)) for array, value in zip(given, graph.inputs)]
    wanted, found = run_graph(graph, arrays, externs=externs()), Executor(plan, externs=externs()).run(arrays)
    for a, b in zip(wanted, found, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(b.astype(np.float32), a.astype(np.float32), rtol=1e-2, atol=1e-2)
    return plan


def matmuls_in(kernel: Kernel) -> int:
    """The number of accumulations in a kernel, which is one for each matmul."""
    return sum(isinstance(s, Accumulate) for phase in kernel.phases for s in phase.statements)


def fused(plan: Plan) -> list[list[str]]:
    """The operations of each kernel, in the order of the launches."""
    return [[each.operation for each in step.origins] for step in plan.steps if isinstance(step, Launch)]


def test_an_epilogue_at_the_same_point_is_fused() -> None:
    body = MATMUL + (
        "  %s = pointwise f16[i0: 12, i1: 16] { f16(f32(%p[i0, i1]) + f32(%r[i0, i1])) }\n"
        "  %o = pointwise f16[i0: 16, i1: 12] fixed { f16(exp(f32(%s[i1, i0]))) }\n"
        "  %t = pointwise f32[i0: 12, i1: 16] fixed { f32(%p[i0, i1]) * 2.0 }\n"
    )
    plan = planned(body, "%o, %t")
    assert fused(plan) == [["p", "s", "o", "t"]]


def test_a_matmul_is_rounded_before_it_leaves_its_kernel() -> None:
    body = MATMUL + "  %o = reduce.sum f32[i0: 12 | r0: 16] fixed { f32(%p[i0, r0]) }\n"
    plan = planned(body, "%o")
    assert fused(plan) == [["p"], ["o"]]
    assert [str(plan.placement(name).type.dtype) for name in ("p",)] == ["f16"]


def test_two_matmuls_have_two_kernels() -> None:
    body = MATMUL + (
        "  %q = contraction.matmul aten.mm.default(%x, %v) -> f16[12, 16] flops 7680\n"
        "  %o = pointwise f16[i0: 12, i1: 16] fixed { %p[i0, i1] * %q[i0, i1] }\n"
    )
    plan = planned(body, "%o")
    assert [matmuls_in(kernel) for kernel in plan.kernels] == [1, 1]
    assert fused(plan) == [["p"], ["q", "o"]]


def test_a_loop_that_does_not_read_the_result_is_not_fused() -> None:
    body = MATMUL + (
        "  %e = pointwise f16[i0: 12, i1: 16] fixed { f16(exp(f32(%r[i0, i1]))) }\n"
        "  %o = pointwise f16[i0: 12, i1: 16] fixed { %p[i0, i1] * %e[i0, i1] }\n"
    )
    plan = planned(body, "%e, %o")
    assert sorted(fused(plan)) == [["e"], ["p", "o"]]


@pytest.mark.parametrize(
    ("body", "inputs", "kernels"),
    [
        ("%f = pointwise f16[i0: 12, i1: 20] { maximum(%x[i0, i1], 0.0) }", "", 1),
        ("%f = pointwise f16[i0: 12, i1: 20] { f16(f32(%n[i0, i1]) * %c[i0]) }", ", %n: i8[12, 20], %c: f32[12]", 1),
        ("%f = pointwise f16[i0: 12, i1: 20] { f16(exp(f32(%x[i0, i1]))) }", "", 2),
        ("%f = pointwise f16[i0: 12, i1: 20] { f16(%n[i0, i1]) }", ", %n: f32[12, 20]", 2),
    ],
    ids=["cheap", "scaled", "expensive", "larger"],
)  # fmt: skip
def test_a_cheap_prologue_of_an_operand_is_fused(body: str, inputs: str, kernels: int) -> None:
    matmul = "  %p = contraction.matmul aten.mm.default(%f, %w) -> f16[12, 16] fixed flops 7680\n"
    assert len(planned(f"  {body}\n{matmul}", "%p", inputs).kernels) == kernels


@pytest.mark.parametrize(("readers", "kernels"), [(1, 1), (2, 2)])
def test_larger_intermediate_values_of_a_prologue_are_not_counted(readers: int, kernels: int) -> None:
    body = (
        "  %u = pointwise i32[i0: 12, i1: 20] { i32(%n[i0, i1]) }\n"
        "  %f = pointwise f32[i0: 12, i1: 20] { f32(%u[i0, i1]) * %c[i0] }\n"
        "  %h = pointwise f16[i0: 12, i1: 20] { f16(%f[i0, i1]) }\n"
        "  %p = contraction.matmul aten.mm.default(%h, %w) -> f16[12, 16] fixed flops 7680\n"
    )
    more = "  %t = reduce.sum f32[i0: 12 | r0: 20] fixed { %f[i0, r0] }\n"
    results = "%p" if readers == 1 else "%p, %t"
    made = planned(body + more * (readers - 1), results, ", %n: i8[12, 20], %c: f32[12]")
    assert len(made.kernels) == kernels


def test_an_operand_of_two_matmuls_is_stored() -> None:
    body = (
        "  %f = pointwise f16[i0: 12, i1: 20] { maximum(%x[i0, i1], 0.0) }\n"
        "  %p = contraction.matmul aten.mm.default(%f, %w) -> f16[12, 16] fixed flops 7680\n"
        "  %q = contraction.matmul aten.mm.default(%f, %v) -> f16[12, 16] fixed flops 7680\n"
    )
    assert fused(planned(body, "%p, %q"))[0] == ["f"]


@pytest.mark.parametrize(
    ("summed", "sm_count", "splits", "length"),
    [(8192, 2, 2, 4096), (8192, 5, 4, 2048), (8191, 3, 3, 2752), (8192, 3, 3, 2752), (1024, 3, 0, 1024)],
)
def test_split_k_of_a_matmul_with_few_tiles(summed: int, sm_count: int, splits: int, length: int) -> None:
    graph = parse_graph(
        f"graph g(%x: f16[40, {summed}] fixed, %w: f16[{summed}, 50] fixed, %b: f16[50] fixed) -> (%o) {{\n"
        "  %o = contraction.matmul aten.addmm.default(%b, %x, %w) -> f16[40, 50] fixed flops 1\n}"
    )
    plan = plan_of(graph, with_numbers(GPU_LIKE, sm_count=sm_count), EVERY)
    (divided, *rest) = plan.kernels
    assert [d.note for d in plan.decisions if d.reason.key == "split.threads"] == (
        [f"{splits} splits"] if splits else []
    )
    assert len(rest) == (1 if splits else 0)
    assert [axis.size for axis in divided.outer] == ([splits] if splits else []) + [40, 50]
    assert [axis.size for axis in divided.phases[0].axes] == [length]


@pytest.mark.parametrize(("batch", "splits", "lengths"), [(8, 4, [1200]), (7, 4, [1088])])
def test_split_k_over_several_axes(batch: int, splits: int, lengths: list[int]) -> None:
    graph = parse_graph(
        f"graph g(%x: f32[{batch}, 24, 25, 40] fixed, %w: f32[{batch}, 24, 25, 50] fixed) -> (%o) {{\n"
        f"  %o = reduce.sum f32[i0: 40, i1: 50 | n: {batch}, y: 24, x: 25] fixed"
        " { %x[n, y, x, i0] * %w[n, y, x, i1] }\n}"
    )
    plan = plan_of(graph, GPU_LIKE, SchedulerOptions())
    assert [d.note for d in plan.decisions if d.reason.key == "split.threads"] == [f"{splits} splits"]
    assert [axis.size for axis in plan.kernels[0].phases[0].axes] == lengths
    generator = np.random.default_rng(0)
    x, w = (generator.integers(-2, 3, each.type.shape).astype(np.float32) for each in graph.inputs)
    (found,) = Executor(plan).run([x, w])
    np.testing.assert_array_equal(found, np.einsum("nyxi,nyxj->ij", x, w))


SLOPE = """
graph slope(%g: f32[{batch}, 8, 24, 25] fixed, %x: f32[{batch}, 4, 24, 25] fixed, %w: f32[8, 4, 3, 3] fixed) -> (%o) {{
  %none, %o, %nothing = contraction.convolution aten.convolution_backward.default(%g, %x, %w, [0], [1, 1], [1, 1],
      [1, 1], false, [0, 0], 1, [false, true, false])
    -> f32[0], f32[8, 4, 3, 3] fixed, f32[0]
}}
"""


@pytest.mark.parametrize(
    ("batch", "sm_count", "splits", "lengths"),
    [
        (8, 4, 4, [2, 24, 25]),
        (7, 4, 4, [1088]),
        (5, 2, 2, [1536]),
        (1, 4, 0, [24, 25]),
        (13, 3, 3, [2624]),
    ],
)
def test_split_k_of_the_gradient_of_a_weight(
    batch: int, sm_count: int, splits: int, lengths: list[int]
) -> None:
    graph = parse_graph(SLOPE.format(batch=batch))
    plan = plan_of(graph, with_numbers(GPU_LIKE, sm_count=sm_count), EVERY)
    notes = [d.note for d in plan.decisions if d.reason.key == "split.threads"]
    assert notes == ([f"{splits} splits"] if splits else [])
    assert [axis.size for axis in plan.kernels[0].phases[0].axes] == lengths
    generator = np.random.default_rng(0)
    given = [generator.integers(-2, 3, each.type.shape).astype(np.float32) for each in graph.inputs]
    (found,) = Executor(plan).run(given)
    gradient, x, _ = given
    around = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    for a, b in np.ndindex(3, 3):
        wanted = np.einsum("noyx,niyx->oi", gradient, around[:, :, a : a + 24, b : b + 25])
        np.testing.assert_array_equal(found[:, :, a, b], wanted)


def test_unused_results_do_not_decide_the_device() -> None:
    text = (
        SLOPE.format(batch=2)
        .replace("graph slope(", "graph slope on cuda(")
        .replace("f32[0]", "f32[0] on cpu")
    )
    machines = {CPU: CPU_LIKE, Device("cuda"): replace(GPU_LIKE, device=Device("cuda"))}
    plan = schedule(parse_graph(text), PassContext(machines), EVERY)
    assert not any(isinstance(step, CallStep) for step in plan.steps)


GROUPED = (
    "graph g(%x: f32[{rows}, 8] fixed, %w: f32[3, 8, 4] fixed, %e: i32[3] fixed) -> (%p) {{\n"
    "  %p = contraction.matmul aten._grouped_mm.default(%x, %w, {ends}) -> f32[{rows}, 4] fixed flops 1\n}}"
)


@pytest.mark.parametrize("rows", [1, 48, 61, 600])
@pytest.mark.parametrize("shares", [(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 2, 3), (7, 0, 1), (0, 5, 1)])
def test_each_row_is_multiplied_with_its_group(rows: int, shares: tuple[int, ...]) -> None:
    ends = np.cumsum(shares) * rows // max(sum(shares), 1)
    plan = plan_of(parse_graph(GROUPED.format(rows=rows, ends="%e")), GPU_LIKE, EVERY)
    assert not any(isinstance(step, CallStep) for step in plan.steps)
    x = np.arange(rows * 8, dtype=np.float32).reshape(rows, 8) % 7
    w = np.arange(96, dtype=np.float32).reshape(3, 8, 4) % 5
    (found,) = Executor(plan).run([x, w, ends.astype(np.int32)])
    for group, (begin, end) in enumerate(zip((0, *ends), ends)):
        np.testing.assert_array_equal(found[begin:end], x[begin:end] @ w[group])


def test_other_groups_stay_calls() -> None:
    for text in (GROUPED.format(rows=48, ends="%e, %e"), GROUPED.format(rows=48, ends="%x")):
        plan = plan_of(parse_graph(text), GPU_LIKE, EVERY)
        assert [type(step) for step in plan.steps if isinstance(step, CallStep)] == [CallStep]


GROUPED_SCALED = """
graph g(%x: f8e4m3fn[61, 16] fixed, %w: f8e4m3fn[3, 16, 4] fixed, %s: f32[{left}] fixed,
  %t: f32[3, 4] fixed, %e: i32[3] fixed) -> (%p) {{
  %p = contraction.matmul aten._scaled_grouped_mm.default(%x, %w, %s, %t, %e{more}) -> bf16[61, 4] fixed flops 1
}}
"""


def test_scales_of_groups_are_of_rows_and_of_columns_of_each() -> None:
    generator = np.random.default_rng(0)
    x, w = (generator.integers(-8, 9, shape).astype(np.float32) for shape in ((61, 16), (3, 16, 4)))
    s, t = (2.0 ** generator.integers(-2, 3, shape).astype(np.float32) for shape in ((61,), (3, 4)))
    ends = np.array([20, 20, 50], np.int32)
    plan = plan_of(parse_graph(GROUPED_SCALED.format(left=61, more="")), GPU_LIKE, EVERY)
    assert not any(isinstance(step, CallStep) for step in plan.steps)
    (found,) = Executor(plan).run([encode(x, f8e4m3fn), encode(w, f8e4m3fn), s, t, ends])
    for group, (begin, end) in enumerate(zip((0, *ends), ends)):
        wanted = (x[begin:end] @ w[group]) * s[begin:end, None] * t[group]
        np.testing.assert_array_equal(found[begin:end], encode(wanted, bf16))


def test_other_scales_of_groups_stay_calls() -> None:
    for left, more in ((1, ""), (61, ", %s")):
        plan = plan_of(parse_graph(GROUPED_SCALED.format(left=left, more=more)), GPU_LIKE, EVERY)
        assert any(isinstance(step, CallStep) for step in plan.steps)


SCALED = (
    "graph g(%x: {dtype}[12, 20] fixed, %w: f8e5m2[20, 16] fixed, %s: f32[{left}], %t: f32[{right}]) -> (%p) {{\n"
    "  %p = contraction.matmul aten._scaled_mm.default(%x, %w, %s, %t{more}) -> {result}[12, 16] fixed flops 1\n}}"
)


@pytest.mark.parametrize(
    ("left", "right", "more", "dtype", "result", "generated"),
    [
        ("1", "1", "", "f8e4m3fn", "bf16", True),
        ("12, 1", "1, 16", "", "f8e4m3fn", "bf16", True),
        ("12, 1", "1, 16", ", none, none, bf16, true", "f8e5m2", "f32", True),
        ("12, 16", "1, 16", "", "f8e4m3fn", "bf16", False),  # scales of blocks
        ("12, 1", "20, 16", "", "f8e4m3fn", "bf16", False),
        ("1", "1", ", none, %s", "f8e4m3fn", "bf16", False),  # a scale of the result
        ("1", "1", "", "f8e4m3fn", "f8e4m3fn", False),
        ("1", "1", "", "bf16", "bf16", False),
    ],
)
def test_plain_scales_are_multiplied_in_loops(
    left: str, right: str, more: str, dtype: str, result: str, generated: bool
) -> None:
    text = SCALED.format(left=left, right=right, more=more, dtype=dtype, result=result)
    plan = plan_of(parse_graph(text), GPU_LIKE, EVERY)
    assert any(isinstance(step, CallStep) for step in plan.steps) != generated


@pytest.mark.parametrize(
    ("own", "fast", "note"), [(True, "true", "fp8, fast"), (True, "false", "fp8"), (False, "true", "")]
)
def test_sums_of_8_bit_floats_are_as_precise_as_asked(own: bool, fast: str, note: str) -> None:
    more = f", none, none, bf16, {fast}"
    text = SCALED.format(left="1", right="1", more=more, dtype="f8e4m3fn", result="bf16")
    plan = plan_of(parse_graph(text), replace(GPU_LIKE, fp8_matmul=own), EVERY)
    assert [each.note for each in plan.decisions if each.reason.key == "library.generated"] == [note]
