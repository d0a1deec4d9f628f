"""Reductions with nested reductions, which are attention and its gradient: fusion of their kernels and split
reductions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scheduler_builder import GPU_LIKE, plan_of, with_numbers

from litz_ir.host import Executor
from litz_ir.interp import run_graph
from litz_ir.interp.encoding import storage_dtype
from litz_ir.plan import Launch, Plan
from litz_ir.symbols import evaluate
from litz_ir.text import parse_graph, to_text
from litz_scheduler import SchedulerOptions

HEADS, QUERIES, KEYS, DEPTH, WIDTH = 4, 6, 10, 8, 16

OPERANDS = (
    f"%q: f16[{HEADS}, {QUERIES}, {DEPTH}] fixed, %k: f16[2, {KEYS}, {DEPTH}] fixed, "
    f"%v: f16[2, {KEYS}, {WIDTH}] fixed"
)
SCORE = f"nested_reduce(e: {DEPTH} | f32(%q[i0*2 + i1, i2, e]) * f32(%k[i0, r0, e])) * 0.5"
CAUSAL_SCORE = f"where(index(i2) >= index(r0), {SCORE}, -inf)"
SOFTMAX_SUM = (
    f"  %top, %total, %sum = reduce.softmax_sum [i0: 2, i1: 2, i2: {QUERIES}, i3: {WIDTH} | r0: {KEYS}]"
    f" -> f32[2, 2, {QUERIES}, 1], f32[2, 2, {QUERIES}, 1], f32[2, 2, {QUERIES}, {WIDTH}]"
    f" {{ {CAUSAL_SCORE}, f32(%v[i0, r0, i3]) }}\n"
)
QUOTIENT = (
    f"  %o = pointwise f16[i0: {HEADS}, i1: {QUERIES}, i2: {WIDTH}] fixed"
    " { f16(%sum[i0//2, i0 % 2, i1, i2] / %total[i0//2, i0 % 2, i1, 0]) }\n"
)
LOGARITHM = (
    f"  %l = pointwise f32[i0: {HEADS}, i1: {QUERIES}] fixed"
    " { %top[i0//2, i0 % 2, i1, 0] + log(%total[i0//2, i0 % 2, i1, 0]) }\n"
)


def planned(
    text: str, sm_count: int = GPU_LIKE.model.sm_count, options: SchedulerOptions | None = None
) -> Plan:
    """The plan of a graph, checked against the reference interpreter."""
    graph = parse_graph(text)
    plan = plan_of(graph, with_numbers(GPU_LIKE, sm_count=sm_count), options or SchedulerOptions())
    generator = np.random.default_rng(0)
    sizes = {info.name: 1021 for info in graph.symbols}
    shapes = [tuple(evaluate(size, sizes) for size in value.type.shape) for value in graph.inputs]
    arrays = [
        generator.uniform(-1, 9 if v.type.dtype.is_integer else 1, shape).astype(storage_dtype(v.type.dtype))
        for v, shape in zip(graph.inputs, shapes, strict=True)
    ]
    for a, b in zip(run_graph(graph, arrays), Executor(plan).run(arrays), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(b.astype(np.float32), a.astype(np.float32), rtol=2e-3, atol=2e-3)
    return plan


def fused(plan: Plan) -> list[list[str]]:
    """The operations of each kernel, in the order of the launches."""
    return [[each.operation for each in step.origins] for step in plan.steps if isinstance(step, Launch)]


def test_attention_is_one_kernel(golden: Callable[[str, str], None]) -> None:
    """The result and each row's logarithm, which does not vary along the values, are stored by one kernel."""
    plan = planned(f"graph g({OPERANDS}) -> (%o, %l) {{\n{SOFTMAX_SUM}{QUOTIENT}{LOGARITHM}}}\n")
    assert fused(plan) == [["top", "o", "l"]]
    golden("attention_sm_90.txt", to_text(plan))


def test_row_statistics_alone_are_fused_with_their_epilogue() -> None:
    plan = planned(f"graph g({OPERANDS}) -> (%l) {{\n{SOFTMAX_SUM}{LOGARITHM}}}\n")
    assert fused(plan) == [["top", "l"]]


def test_a_reader_of_other_rows_is_not_fused() -> None:
    last = f"  %m = reduce.max f32[i0: {HEADS} | r0: {QUERIES}] fixed {{ %l[i0, r0] }}\n"
    plan = planned(f"graph g({OPERANDS}) -> (%o, %m) {{\n{SOFTMAX_SUM}{QUOTIENT}{LOGARITHM}{last}}}\n")
    assert fused(plan) == [["top", "o", "l"], ["m"]]


def test_reductions_over_many_keys_are_split(golden: Callable[[str, str], None]) -> None:
    keys = 1024
    text = f"graph g({OPERANDS}) -> (%o, %l) {{\n{SOFTMAX_SUM}{QUOTIENT}{LOGARITHM}}}\n"
    text = text.replace(f"[2, {KEYS},", f"[2, {keys},").replace(f"r0: {KEYS}", f"r0: {keys}")
    plan = planned(text.replace(CAUSAL_SCORE, SCORE), sm_count=8)
    assert [each.note for each in plan.decisions if each.reason.key == "split.threads"] == ["4 splits"]
    assert len(plan.kernels) == 2
    assert plan.placement("top.partial").type.shape == (4, 2, 2, QUERIES, 1)
    golden("split_attention_sm_90.txt", to_text(plan))


@pytest.mark.parametrize("keys", [1021, "n"], ids=["a prime", "not known"])
def test_splits_need_not_be_equal(keys: int | str) -> None:
    text = f"graph g({OPERANDS}) -> (%o, %l) {{\n{SOFTMAX_SUM}{QUOTIENT}{LOGARITHM}}}\n"
    text = text.replace(f"[2, {KEYS},", f"[2, {keys},").replace(f"r0: {KEYS}", f"r0: {keys}")
    if keys == "n":
        text = text.replace("{\n", "{\n  symbols {\n    n: int from 1 hint 1021\n  }\n", 1)
    plan = planned(text.replace(CAUSAL_SCORE, SCORE), sm_count=7)
    assert [each.note for each in plan.decisions if each.reason.key == "split.threads"] == ["3 splits"]


def test_block_lists_are_split_between_blocks() -> None:
    score = SCORE.replace("r0", "indirect(%n[r0], size=64, assumed)*16 + r1")
    value = "f32(%v[i0, indirect(%n[r0], size=64, assumed)*16 + r1, i3])"
    softmax = SOFTMAX_SUM.replace(CAUSAL_SCORE, f"masked(index(r0) < %c[0], {score}, -inf)")
    softmax = softmax.replace("f32(%v[i0, r0, i3])", f"masked(index(r0) < %c[0], {value}, 0.0)")
    softmax = softmax.replace(f"r0: {KEYS}", "r0: 64, r1: 16")
    operands = OPERANDS.replace(f"[2, {KEYS},", "[2, 1024,")
    plan = planned(
        f"graph g({operands}, %n: i64[64] fixed, %c: i64[1] fixed) -> (%o) {{\n{softmax}{QUOTIENT}}}\n", 999
    )
    assert [axis.size for axis in plan.kernels[0].phases[0].axes] == [16, 16]


def gradient(name: str, given: str, left: str, right: str, width: int) -> str:
    return (
        f"  %{name}.sum = reduce.sum f32[i0: 2, i1: {KEYS}, i2: {width} | r0: 2, r1: {QUERIES}]"
        f" {{ f32({left}) * f32({right}) }}\n"
        f"  %{name} = pointwise f16[i0: 2, i1: {KEYS}, i2: {width}] fixed {{ f16(%{name}.sum[i0, i1, i2]) }}\n"
    )


def backward(depth: int) -> str:
    """The gradients of keys and values as wide as ``depth`` and ``WIDTH``."""
    q, k = (
        f"%{name}: f16[{n}, {m}, {depth}] fixed" for name, n, m in (("q", HEADS, QUERIES), ("k", 2, KEYS))
    )
    rest = f"%v: f16[2, {KEYS}, {WIDTH}] fixed, %do: f16[{HEADS}, {QUERIES}, {WIDTH}] fixed"
    rows = f"%lse: f32[{HEADS}, {QUERIES}] fixed, %delta: f32[{HEADS}, {QUERIES}] fixed"
    score = f"nested_reduce(e: {depth} | f32(%q[i0*2 + r0, r1, e]) * f32(%k[i0, i1, e])) * 0.5"
    weight = f"exp({score} - %lse[i0*2 + r0, r1])"
    share = (
        f"nested_reduce(c: {WIDTH} | f32(%do[i0*2 + r0, r1, c]) * f32(%v[i0, i1, c])) - %delta[i0*2 + r0, r1]"
    )
    values = gradient("dv", "do", f"f16({weight})", "%do[i0*2 + r0, r1, i2]", WIDTH)
    keys = gradient("dk", "q", f"f16({weight} * ({share}))", "%q[i0*2 + r0, r1, i2]", depth)
    return f"graph g({q}, {k}, {rest}, {rows}) -> (%dk, %dv) {{\n{values}{keys}}}\n"


def test_gradients_that_need_the_same_scores_share_a_kernel(golden: Callable[[str, str], None]) -> None:
    plan = planned(backward(WIDTH))
    assert fused(plan) == [["dv.sum", "dv", "dk.sum", "dk"]]
    golden("attention_backward_sm_90.txt", to_text(plan))


def test_gradients_of_different_widths_have_two_kernels() -> None:
    assert fused(planned(backward(DEPTH))) == [["dv.sum", "dv"], ["dk.sum", "dk"]]


def test_reductions_with_other_nested_reductions_are_not_fused() -> None:
    other = (
        f"  %p = reduce.sum f32[i0: 2, i1: 2, i2: {QUERIES}, i3: {WIDTH} | r0: {KEYS}] fixed"
        " { f32(%v[i0, r0, i3]) * f32(%q[i0*2 + i1, i2, 0]) }\n"
    )
    plan = planned(f"graph g({OPERANDS}) -> (%o, %p) {{\n{SOFTMAX_SUM}{other}{QUOTIENT}}}\n")
    assert sorted(fused(plan)) == [["p"], ["top", "o"]]


# --- scores without a second matmul -----------------------------------------------------------------------

ZEROED_SCORE = f"where(index(i2) >= index(r0), {SCORE}, 0.0)"
ROWS = f"  %rows = reduce.sum f32[i0: 2, i1: 2, i2: {QUERIES} | r0: {KEYS}] {{ {ZEROED_SCORE} }}\n"


def test_sums_of_rows_are_kernels_of_their_own() -> None:
    """A prologue is stored first, not computed for each tile; an epilogue at the sum's point is fused."""
    dear = f"  %x = pointwise f32[i0: {KEYS}] {{ exp(sqrt(%b[i0])) }}\n"
    rows = ROWS.replace(SCORE, f"({SCORE} + %x[r0])")
    last = f"  %r = pointwise f32[i0: 2, i1: 2, i2: {QUERIES}] fixed {{ %rows[i0, i1, i2] * 2.0 }}\n"
    plan = planned(f"graph g({OPERANDS}, %b: f32[{KEYS}] fixed) -> (%r) {{\n{dear}{rows}{last}}}\n")
    assert fused(plan) == [["x"], ["rows", "r"]]


def test_sums_of_few_rows_are_split() -> None:
    text = f"graph g({OPERANDS}) -> (%rows) {{\n{ROWS}}}\n".replace(ZEROED_SCORE, SCORE)
    text = text.replace(f"[2, {KEYS},", "[2, 1024,").replace(f"r0: {KEYS}", "r0: 1024")
    plan = planned(text, sm_count=8)
    assert [each.note for each in plan.decisions if each.reason.key == "split.threads"] == ["4 splits"]


def test_scores_are_scattered_by_kernels_of_their_own() -> None:
    zeros = "  %z = pointwise f32[i0: 32] { 0.0 }\n"
    score = SCORE.replace("r0", "i3")
    added = (
        f"  %t = scatter.add [i0: 2, i1: 2, i2: {QUERIES}, i3: {KEYS}] -> f32[32] fixed"
        f" {{ %z[i2 - i3 + 16] = where(index(i2) >= index(i3), {score}, -0.0) }}\n"
    )
    plan = planned(f"graph g({OPERANDS}) -> (%t) {{\n{zeros}{added}}}\n")
    assert fused(plan) == [["z"], ["t"]]


def test_nested_reductions_are_rounded_where_matmuls_are() -> None:
    """The settings ask for it, and the operands are f32."""
    text = f"graph g({OPERANDS}) -> (%o, %l) {{\n{SOFTMAX_SUM}{QUOTIENT}{LOGARITHM}}}\n"
    rounding = SchedulerOptions(matmul_precision="tf32")
    exact = text.replace("f16[", "f32[").replace("f16(", "f32(")
    assert "mul_tf32(" in to_text(planned(exact, options=rounding))
    assert "mul_tf32(" not in to_text(planned(exact))
    assert "mul_tf32(" not in to_text(planned(text, options=rounding))
