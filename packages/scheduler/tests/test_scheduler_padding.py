"""Padding of the leading dimension of matmul operands: which rows are padded, by how much, and which are not."""

from __future__ import annotations

import pytest
from scheduler_builder import CPU_LIKE, GPU_LIKE, assert_same, plan_of

from litz_ir.plan import Plan
from litz_ir.target import Capabilities
from litz_ir.text import parse_graph
from litz_scheduler import SchedulerOptions

PADDED = SchedulerOptions(pad_leading_dimension=True)
COMPUTED = "%p = pointwise f32[i0: 5, i1: COLUMNS] { %x[i0, i1] * 0.5 + 1.0 }"
MATMUL = "%a = contraction.matmul aten.mm.default(%p, %w) -> f32[5, 4] fixed flops 1"
VIEW = "%t = view f32[i0: COLUMNS, i1: 5] { %p[i1, i0] }"
TRANSPOSED = f"{VIEW}\n%b = contraction.matmul aten.mm.default(%t, %h) -> f32[COLUMNS, 4] fixed flops 1"
READ = "%s = reduce.sum f32[i0: 5 | r0: COLUMNS] fixed { %p[i0, r0] }"
EXTERN = "%e = extern aten.exp.default(%p) -> f32[5, COLUMNS] fixed"


def planned(
    columns: int, *operations: str, results: str = "%a", on: bool = True, machine: Capabilities = GPU_LIKE
) -> Plan:
    inputs = "%x: f32[5, COLUMNS] fixed, %w: f32[COLUMNS, 4] fixed, %h: f32[5, 4] fixed"
    text = f"graph g({inputs}) -> ({results}) {{\n" + "\n".join(operations) + "\n}"
    graph = parse_graph(text.replace("COLUMNS", str(columns)))
    plan = plan_of(graph, machine, PADDED if on else None)
    if columns < 4096 and EXTERN not in operations:
        assert_same(graph, plan)
    return plan


def row_stride(plan: Plan, name: str = "p") -> object:
    return plan.placement(name).type.layout.strides[0]


@pytest.mark.parametrize(
    ("columns", "wanted"),
    [(1031, 1056), (1032, 1032), (2047, 2048), (257, 260), (137, 140), (63, 64), (25, 25), (50257, 50272)],
)
def test_rows_are_padded_by_a_sixteenth_at_most(columns: int, wanted: int) -> None:
    plan = planned(columns, COMPUTED, MATMUL)
    assert row_stride(plan) == wanted
    assert all(isinstance(each.nbytes, int) and each.nbytes < 4 * 5 * wanted + 64 for each in plan.storages)
    assert row_stride(planned(columns, COMPUTED, MATMUL, on=False)) == columns
    assert row_stride(planned(columns, COMPUTED, MATMUL, machine=CPU_LIKE)) == columns


def test_views_that_matmuls_read_have_the_same_padding() -> None:
    plan = planned(1031, COMPUTED, MATMUL, TRANSPOSED, READ, results="%a, %b, %s")
    assert plan.placement("t").type.layout.strides == (1, 1056)
    assert plan.placement("t").base == "p"


@pytest.mark.parametrize(
    ("operations", "results"),
    [
        ((COMPUTED, MATMUL), "%a, %p"),
        ((COMPUTED, MATMUL, VIEW), "%a, %t"),
        ((COMPUTED, MATMUL, EXTERN), "%a, %e"),
        ((COMPUTED, EXTERN, READ), "%e, %s"),
    ],
    ids=["a result", "shown by a result", "another routine reads it too", "no matmul reads it"],
)
def test_values_read_elsewhere_are_not_padded(operations: tuple[str, ...], results: str) -> None:
    assert row_stride(planned(1031, *operations, results=results)) == 1031
