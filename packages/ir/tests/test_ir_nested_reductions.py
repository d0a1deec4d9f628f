"""Nested reductions: their bound names, their meaning, and attention built from them."""

from __future__ import annotations

import numpy as np
import pytest

from litz_ir.dtypes import bf16, f32, i32
from litz_ir.errors import GraphError, VerifyError
from litz_ir.interp.encoding import Array, decode
from litz_ir.interp.graph import run_graph
from litz_ir.interp.kernel import run_kernel
from litz_ir.loops.combiners import NamedCombiner, UserCombiner, result_operands
from litz_ir.loops.verify import verify_graph
from litz_ir.plan.accessed_ranges import access_ranges
from litz_ir.scalar.build import cast, const, load, op
from litz_ir.scalar.expr import NestedReduction, Param, nested_reductions, substitute_expr
from litz_ir.scalar.verify import BodyScope, BufferInfo, ErrorLocation, verify_bodies
from litz_ir.serial.nodes import NodeReader, NodeWriter
from litz_ir.symbols.term import symbol
from litz_ir.target.cases import Case
from litz_ir.target.cases.nested_reductions import DEPTH, HEADS, KEYS, QUERIES, WIDTH, nested_reduction_cases
from litz_ir.target.cases.reductions import reduction_cases
from litz_ir.text import parse_graph
from litz_ir.text.parsing.bodies import parse_expr
from litz_ir.text.printing.bodies import print_expr

CASES = {case.name: case for case in nested_reduction_cases()}
e, i, n = symbol("e"), symbol("i"), symbol("n")
X = load("x", (i, e), f32)
ROW = NestedReduction((("e", n),), op("mul", X, X))


def run(case: Case) -> dict[str, Array]:
    buffers = case.fresh()
    run_kernel(case.kernel, buffers, case.symbols)
    return {p.name: decode(buffers[p.name], p.dtype) for p in case.kernel.parameters}


def test_the_axes_are_bound() -> None:
    assert ROW.free_symbols == {"i", "n"}
    assert op("add", ROW, load("y", (i,), f32)).free_symbols == {"i", "n"}


def test_substitution_reaches_body_and_size() -> None:
    moved = substitute_expr(ROW, {"i": i + 1, "n": 8})
    x = load("x", (i + 1, e), f32)
    assert moved == NestedReduction((("e", 8),), op("mul", x, x))


def test_only_wide_floats_are_summed() -> None:
    with pytest.raises(GraphError, match="a nested reduction sums f32 or f64, got bf16"):
        NestedReduction((("e", 4),), load("x", (e,), bf16))


def test_text_and_json_round_trip() -> None:
    body = op("add", ROW, load("y", (i,), f32))
    text = print_expr(body)
    assert text == "nested_reduce(e: n | %x[i, e]:f32 * %x[i, e]:f32) + %y[i]:f32"
    assert parse_expr(text) == body
    writer = NodeWriter()
    position = writer.expr(body)
    assert NodeReader(writer.entries).expr(position) == body


SCOPE = BodyScope(buffers={"x": BufferInfo(f32, (4, 8))}, names=frozenset(("i", "n")))


def reduction_of(size: int, name: str = "e") -> NestedReduction:
    return NestedReduction(((name, size),), load("x", (0, symbol(name)), f32))


def error_of(*bodies: NestedReduction) -> VerifyError:
    with pytest.raises(VerifyError) as caught:
        verify_bodies(bodies, SCOPE, ErrorLocation("test"))
    return caught.value


def test_loads_of_a_nested_reduction_are_checked() -> None:
    verify_bodies([reduction_of(8)], SCOPE, ErrorLocation("test"))
    assert error_of(reduction_of(9)).check == "index-bounds"


def test_names_are_new_and_stay_inside() -> None:
    assert error_of(reduction_of(8, "i")).check == "axes"
    assert error_of(reduction_of(8), reduction_of(4)).check == "axes"
    escaped = op("add", reduction_of(8), cast(load("x", (0, e), f32), f32))
    with pytest.raises(VerifyError, match="the body uses e, in scope are: i, n"):
        verify_bodies([escaped], SCOPE, ErrorLocation("test"))


def test_access_ranges_cover_the_points_of_a_nested_reduction() -> None:
    case = CASES["nested_reduction_in_a_point"]
    found = access_ranges(case.kernel, case.symbols)["x"]
    assert (found.low, found.high, found.read) == (0, QUERIES * DEPTH - 1, QUERIES * DEPTH * 4)


def formula(scores: Array, values: Array) -> Array:
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True) @ values)


def operands(found: dict[str, Array], keys: int = KEYS, group: int = 1) -> tuple[Array, Array, Array]:
    q = found["q"].reshape(HEADS, QUERIES, DEPTH).astype(np.float64)
    k = found["k"].reshape(-1, keys, DEPTH).astype(np.float64).repeat(group, 0)
    v = found["v"].reshape(-1, keys, WIDTH).astype(np.float64).repeat(group, 0)
    return q, k, v


@pytest.mark.parametrize(("name", "group"), [("attention_f32", 1), ("attention_of_groups", 2)])
def test_attention_is_the_formula(name: str, group: int) -> None:
    found = run(CASES[name])
    q, k, v = operands(found, group=group)
    expected = formula(q @ k.transpose(0, 2, 1) * 0.25, v)
    np.testing.assert_allclose(found["o"].reshape(expected.shape), expected, rtol=1e-2, atol=1e-2)


def test_queries_attend_to_listed_blocks_only() -> None:
    found = run(CASES["attention_of_listed_blocks"])
    q, k, v = operands(found, keys=64)
    scores = np.full((HEADS, QUERIES, 64), -np.inf)
    full = q @ k.transpose(0, 2, 1) * 0.25
    for rows, blocks in ((slice(0, 16), (2,)), (slice(16, QUERIES), (3, 1, 0))):
        for block in blocks:
            keys = slice(block * 16, block * 16 + 16)
            scores[:, rows, keys] = full[:, rows, keys]
    expected = formula(scores, v)
    np.testing.assert_allclose(found["o"].reshape(expected.shape), expected, rtol=1e-2, atol=1e-2)


def test_a_fully_masked_row_has_no_weight() -> None:
    (case,) = (case for case in reduction_cases() if case.name == "softmax_sum")
    found = run(case)
    assert found["top"][2] == -np.inf
    assert found["total"][2] == found["weighted"][2] == 0


def test_gradients_are_those_of_the_formula() -> None:
    found = run(CASES["attention_key_gradients"])
    q, k, v = operands(found)
    given = found["do"].reshape(HEADS, QUERIES, WIDTH).astype(np.float64)
    lse, delta = (found[name].reshape(HEADS, QUERIES, 1).astype(np.float64) for name in ("lse", "delta"))
    weights = np.exp(q @ k.transpose(0, 2, 1) * 0.25 - lse)
    scores = weights * (given @ v.transpose(0, 2, 1) - delta) * 0.25
    size = (HEADS, KEYS, WIDTH)
    tolerance = {"rtol": 2e-2, "atol": 2e-2 * float(np.abs(scores).max())}
    np.testing.assert_allclose(found["gv"].reshape(size), weights.transpose(0, 2, 1) @ given, **tolerance)
    keys = found["gk"].reshape(size)
    np.testing.assert_allclose(keys[..., :DEPTH], scores.transpose(0, 2, 1) @ q, **tolerance)
    assert not keys[..., DEPTH:].any()


def test_cases_report_that_they_need_nested_reductions() -> None:
    assert all(case.nested_reductions for case in CASES.values())
    assert (
        len(nested_reductions(*(CASES["attention_key_gradients"].kernel.phases[0].statements[1].values))) == 2
    )


def test_blocks_are_counted_as_integers() -> None:
    assert CASES["attention_of_listed_blocks"].kernel.parameter("listed").dtype == i32


STEADY = """
graph weighted(%scores: f32[3, 5], %values: f32[5, 4]) -> (%top, %total, %weighted) {
  %top, %total, %weighted = reduce.softmax_sum [i: 3, j: 4 | r: 5] -> f32[3, 1], f32[3, 1], f32[3, 4] {
    %scores[i, r],
    %values[r, j]
  }
}
"""


def test_a_result_may_have_one_element_along_an_unused_axis() -> None:
    graph = parse_graph(STEADY)
    verify_graph(graph)
    scores, values = np.linspace(-1, 2, 15).reshape(3, 5), np.linspace(0, 1, 20).reshape(5, 4)
    top, total, weighted = run_graph(graph, [scores.astype(np.float32), values.astype(np.float32)])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    np.testing.assert_allclose(top, scores.max(-1, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(total, weights.sum(-1, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(weighted, weights @ values, rtol=1e-6)


@pytest.mark.parametrize(
    "wrong",
    ["f32[3, 1], f32[1, 1], f32[3, 4]", "f32[3, 1], f32[3, 1], f32[3, 1]", "f32[3], f32[3], f32[3, 4]"],
)
def test_other_results_have_the_shape_of_the_loop(wrong: str) -> None:
    graph = parse_graph(STEADY.replace("f32[3, 1], f32[3, 1], f32[3, 4]", wrong))
    with pytest.raises(VerifyError) as caught:
        verify_graph(graph)
    assert caught.value.check == "result-shape"


def test_merged_results_depend_on_all_merged_operands() -> None:
    top, other = Param(0, f32), Param(2, f32)
    merged = UserCombiner(
        (op("maximum", top, other), op("add", Param(1, f32), op("mul", Param(3, f32), top))),
        (const(0.0, f32), const(0.0, f32)),
        (top, op("neg", Param(1, f32))),
    )
    assert [result_operands(merged, k, (f32, f32)) for k in range(2)] == [{0}, {0, 1}]
    weighted = NamedCombiner("softmax_sum")
    assert [result_operands(weighted, k, (f32, f32)) for k in range(3)] == [{0}, {0}, {0, 1}]
