"""Products of matrices as loops: what joins their kernels and what must not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scheduler_builder import GPU_LIKE, externs, plan_of

from litz_ir.host.executor import Executor
from litz_ir.interp.encoding import storage_dtype
from litz_ir.interp.loops import run_graph
from litz_ir.plan.kernel import Accumulate, Kernel
from litz_ir.plan.program import Launch, Plan
from litz_ir.text import parse_graph
from litz_scheduler import SchedulerOptions

EVERY = SchedulerOptions(generated_products=frozenset({"all"}))

HEAD = "graph g(%x: f16[12, 20] fixed, %w: f16[20, 16] fixed, %v: f16[20, 16] fixed, %r: f16[12, 16] fixed"

PRODUCT = "  %p = contraction.matmul aten.mm.default(%x, %w) -> f16[12, 16] flops 7680\n"


def planned(body: str, results: str, inputs: str = "") -> Plan:
    """The plan of a graph over ``x``, ``w``, ``v``, ``r`` and further inputs, checked against its meaning."""
    graph = parse_graph(f"{HEAD}{inputs}) -> ({results}) {{\n{body}}}\n")
    plan = plan_of(graph, GPU_LIKE, EVERY)
    generator = np.random.default_rng(0)
    given = [np.asarray(generator.integers(-4, 5, value.type.shape) / 4) for value in graph.inputs]
    held = [array.astype(storage_dtype(value.type.dtype)) for array, value in zip(given, graph.inputs)]
    wanted, found = run_graph(graph, held, externs=externs()), Executor(plan, externs=externs()).run(held)
    for a, b in zip(wanted, found, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(b.astype(np.float32), a.astype(np.float32), rtol=1e-2, atol=1e-2)
    return plan


def products_in(kernel: Kernel) -> int:
    """How many sums over the rows of a factor a kernel has."""
    return sum(isinstance(s, Accumulate) for phase in kernel.phases for s in phase.statements)


def fused(plan: Plan) -> list[list[str]]:
    """The operations of each kernel, in order of the launches."""
    return [[each.operation for each in step.origins] for step in plan.steps if isinstance(step, Launch)]


def test_what_follows_at_the_same_point_joins() -> None:
    body = PRODUCT + (
        "  %s = pointwise f16[i0: 12, i1: 16] { f16(f32(%p[i0, i1]) + f32(%r[i0, i1])) }\n"
        "  %o = pointwise f16[i0: 16, i1: 12] fixed { f16(exp(f32(%s[i1, i0]))) }\n"
        "  %t = pointwise f32[i0: 12, i1: 16] fixed { f32(%p[i0, i1]) * 2.0 }\n"
    )
    plan = planned(body, "%o, %t")
    assert fused(plan) == [["p", "s", "o", "t"]]


def test_a_product_is_rounded_before_it_leaves_its_kernel() -> None:
    body = PRODUCT + "  %o = reduce.sum f32[i0: 12 | r0: 16] fixed { f32(%p[i0, r0]) }\n"
    plan = planned(body, "%o")
    assert fused(plan) == [["p"], ["o"]]
    assert [str(plan.placement(name).type.dtype) for name in ("p",)] == ["f16"]


def test_two_products_have_two_kernels() -> None:
    body = PRODUCT + (
        "  %q = contraction.matmul aten.mm.default(%x, %v) -> f16[12, 16] flops 7680\n"
        "  %o = pointwise f16[i0: 12, i1: 16] fixed { %p[i0, i1] * %q[i0, i1] }\n"
    )
    plan = planned(body, "%o")
    assert [products_in(kernel) for kernel in plan.kernels] == [1, 1]
    assert fused(plan) == [["p"], ["q", "o"]]


def test_what_does_not_use_the_result_stays_apart() -> None:
    body = PRODUCT + (
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
    ids=["cheap", "scaled", "dear", "wide"],
)  # fmt: skip
def test_factors_are_computed_on_the_way_where_that_is_cheap(body: str, inputs: str, kernels: int) -> None:
    product = "  %p = contraction.matmul aten.mm.default(%f, %w) -> f16[12, 16] fixed flops 7680\n"
    assert len(planned(f"  {body}\n{product}", "%p", inputs).kernels) == kernels


def test_a_factor_of_two_products_is_stored() -> None:
    body = (
        "  %f = pointwise f16[i0: 12, i1: 20] { maximum(%x[i0, i1], 0.0) }\n"
        "  %p = contraction.matmul aten.mm.default(%f, %w) -> f16[12, 16] fixed flops 7680\n"
        "  %q = contraction.matmul aten.mm.default(%f, %v) -> f16[12, 16] fixed flops 7680\n"
    )
    assert fused(planned(body, "%p, %q"))[0] == ["f"]


@pytest.mark.parametrize(("summed", "parts"), [(8192, 2), (1024, 0)])
def test_a_deep_product_of_few_tiles_is_divided(summed: int, parts: int) -> None:
    graph = parse_graph(
        f"graph g(%x: f16[40, {summed}] fixed, %w: f16[{summed}, 50] fixed, %b: f16[50] fixed) -> (%o) {{\n"
        "  %o = contraction.matmul aten.addmm.default(%b, %x, %w) -> f16[40, 50] fixed flops 1\n}"
    )
    plan = plan_of(graph, replace(GPU_LIKE, processors=3), EVERY)
    (divided, *rest) = plan.kernels
    assert [d.note for d in plan.decisions if d.reason == "split.threads"] == (
        [f"{parts} parts"] if parts else []
    )
    assert len(rest) == (1 if parts else 0)
    assert [axis.size for axis in divided.outer] == ([parts] if parts else []) + [40, 50]
