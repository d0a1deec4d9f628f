"""Padded matmuls: an operand that is also saved is the first rows of its padded form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scheduler_builder import GPU_LIKE, externs, plan_of

from litz_ir.host import Executor
from litz_ir.interp import run_graph
from litz_ir.loops import LoopGraph, Pointwise, Value, View
from litz_ir.passes import PassContext
from litz_ir.plan import Plan
from litz_ir.text import parse_graph
from litz_scheduler import SchedulerOptions
from litz_scheduler.library import ChooseStrategies, matmul_strategies

MACHINE = replace(GPU_LIKE, model=replace(GPU_LIKE.model, matrix_rate=10**9, vector_bytes=16))

HEAD = """
graph head(%x: f16[16, 24] fixed, %w: f32[37, 24] fixed) -> (%y, %z, %cast) {
  %cast = pointwise f16[i0: 37, i1: 24] { f16(%w[i0, i1] * 2.0) }
  %transposed = view f16[i0: 24, i1: 37] { %cast[i1, i0] }
  %o = contraction.matmul aten.mm.default(%x, %transposed) -> f16[16, 37] flops 28416
  %y = pointwise f32[i0: 16, i1: 37] fixed { exp(f32(%o[i0, i1])) }
  %z = pointwise f32[i0: 37, i1: 24] fixed { f32(%cast[i0, i1]) + 1.0 }
}
"""


def aligned(text: str) -> dict[str, Pointwise | View]:
    graph = parse_graph(text)
    align = ChooseStrategies(matmul_strategies(SchedulerOptions()), "matmul-strategies")
    found = align.apply(graph, PassContext({graph.inputs[0].type.device: MACHINE}))
    loops = [each for each in found.operations if isinstance(each, Pointwise | View)]
    return {each.results[0].name: each for each in loops}


def assert_equal(graph: LoopGraph, plan: Plan) -> None:
    generator = np.random.default_rng(0)
    given = [
        generator.integers(-4, 5, value.type.shape).astype(value.type.dtype.torch_name) / 4
        for value in graph.inputs
        if isinstance(value, Value)
    ]
    for expected, found in zip(
        run_graph(graph, given, externs=externs()), Executor(plan, externs=externs()).run(given), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_a_saved_weight_is_the_first_rows_of_its_padded_form() -> None:
    text = HEAD.replace("(%y, %z, %cast) {", "(%y, %z, %cast) saved (%cast) {")
    loops = aligned(text)
    (padded,) = (name for name in loops if name in ("cast.aligned40x24", "cast.aligned37x24"))
    cast = loops["cast"]
    assert isinstance(cast, View) and cast.base == padded
    assert isinstance(loops[padded], Pointwise) and loops[padded].results[0].type.shape == (40, 24)
    graph = parse_graph(text)
    plan = plan_of(graph, MACHINE)
    buffers = dict(plan.buffers)
    assert buffers["cast"].base == padded and buffers["cast"].type.layout.strides == (24, 1)
    assert_equal(graph, plan)


@pytest.mark.parametrize(
    "text",
    [HEAD, HEAD.replace("37", "36").replace("24", "23").replace("%cast) {", "%cast) saved (%cast) {")],
    ids=["retransposed", "padded columns"],
)
def test_a_weight_with_a_layout_of_its_own_is_copied(text: str) -> None:
    loops = aligned(text)
    assert isinstance(loops["cast"], Pointwise)
    assert any(name.startswith("cast.aligned") for name in loops)
    graph = parse_graph(text)
    assert_equal(graph, plan_of(graph, MACHINE))
