"""Kernels that are attention: their schedules on a CPU, what they compute, and what is no attention."""

from __future__ import annotations

from dataclasses import replace

import pytest

from litz_ir.errors import VerifyError
from litz_ir.plan import BlockedAttention, CpuAttention, attention_of
from litz_ir.text import parse_kernel
from litz_ir.verifier import verify
from litz_scheduler.schedules.attention_blocks import attention_in_blocks

Found = tuple[CpuAttention, BlockedAttention]
"""A schedule, and what a kernel computes under it."""

SOFTMAX = """
kernel attention(in %q: f32, in %k: f32, in %v: f32, out %o: f32) {
  schedule cpu_loops parallel(i0, i1) vector i2
  outer [i0: 4, i1: {queries}, i2: {columns}]
  phase [r0: 100] {
    $m: f32, $t: f32, $s: f32 = reduce.softmax_sum { {score}, {value} };
  }
  phase [] {
    %o[i0*3200 + i1*32 + i2] = $s / $t;
  }
}
"""
SUMS = """
kernel gradients(in %q: f32, in %k: f32, in %v: f32, out %o: f32, out %p: f32) {
  schedule cpu_loops parallel(i0, i1) vector i2
  outer [i0: 4, i1: 100, i2: 32]
  phase [r0: 90] {
    let weight = nested_reduce(e0: 32 | %q[e0 + i0*2880 + r0*32] * %k[e0 + i0*3200 + i1*32]);
    $a: f32 = reduce.sum { {first} };
    $b: f32 = reduce.sum { %q[i0*2880 + i2 + r0*32] * exp(weight) };
  }
  phase [] {
    %o[i0*3200 + i1*32 + i2] = $a;
    %p[i0*3200 + i1*32 + i2] = $b;
  }
}
"""
DOT = "nested_reduce(e0: 32 | %q[e0 + i0*3200 + i1*32] * %k[e0 + i0*3200 + r0*32])"
VALUE = "%v[i0*3200 + i2 + r0*32]"


def softmax(score: str = DOT, value: str = VALUE, queries: int = 100, columns: int = 32) -> Found | None:
    text = SOFTMAX.replace("{score}", score).replace("{value}", value)
    return found_in(text.replace("{queries}", str(queries)).replace("{columns}", str(columns)))


def found_in(text: str) -> Found | None:
    """Return the schedule that a kernel gets and what it computes under it; ``None`` if it gets none."""
    kernel = attention_in_blocks(parse_kernel(text.strip()))
    if kernel is None:
        return None
    verify(kernel)
    assert isinstance(kernel.schedule, CpuAttention)
    form = attention_of(kernel, kernel.schedule)
    assert form is not None
    return kernel.schedule, form


def test_a_softmax_has_rows_columns_and_keys() -> None:
    found = softmax()
    assert found is not None
    schedule, form = found
    assert schedule == CpuAttention("i2", 64, "i1")
    assert (form.queries.name, form.columns.name) == ("i1", "i2")
    assert [axis.name for axis in form.batch] == ["i0"]
    assert form.softmax == ("m", "t")
    assert [each.result for each in form.sums] == ["s"]


@pytest.mark.parametrize(("queries", "block"), [(5, 5), (16, 16), (17, 17), (32, 32), (33, 64)])
def test_blocks_have_no_more_rows_than_are_needed(queries: int, block: int) -> None:
    found = softmax(queries=queries)
    assert found is not None
    assert found[0] == CpuAttention("i2", block, "i1", "columns" if queries <= 32 else "rows")


def test_a_row_with_keys_of_its_own_is_a_block() -> None:
    found = softmax("nested_reduce(e0: 32 | %q[e0 + i0*3200 + i1*32] * %k[e0 + i0*3200 + i1*3200 + r0*32])")
    assert found is not None
    schedule, form = found
    assert schedule == CpuAttention("i2", 1, None, "columns")
    assert [axis.name for axis in form.batch] == ["i0", "i1"]


GROUPED = "nested_reduce(e0: 32 | %q[e0 + i0*3200 + i1*32] * %k[e0 + i0//2*3200 + r0*32])"


@pytest.mark.parametrize(("queries", "rows"), [(1, 2), (8, 16), (16, 32), (17, 17), (100, 64)])
def test_heads_of_a_group_share_keys_where_they_are_few(queries: int, rows: int) -> None:
    score = GROUPED if queries > 1 else GROUPED.replace(" + i1*32", "")
    found = softmax(score, "%v[i0//2*3200 + i2 + r0*32]", queries=queries)
    assert found is not None
    schedule, form = found
    assert schedule.block == rows
    assert schedule.lanes == ("columns" if rows <= 32 else "rows")
    merged = rows == 2 * queries
    sizes = [axis.size for axis in form.batch if axis.size != 1]
    assert sizes == ([2] if merged else [4])


HIDDEN = """
kernel windows(in %q: f32, in %k: f32, in %v: f32, in %m: b1, out %o: f32) {
  outer [i0: 4, i1: 128, i2: 32]
  phase [r0: 4, r1: 32] {
    let seen = %m[i0*16 + i1//{rows}*4 + r0];
    let score = nested_reduce(e0: 32 | %q[e0 + i0*4096 + i1*32] * %k[e0 + i0*4096 + r0*1024 + r1*32]);
    $m: f32, $t: f32, $s: f32 = reduce.softmax_sum {
      masked(seen, score, -inf:f32), masked(seen, %v[i0*4096 + i2 + r0*1024 + r1*32], 0.0:f32)
    };
  }
  phase [] {
    %o[i0*4096 + i1*32 + i2] = $s / $t;
  }
}
"""


@pytest.mark.parametrize(("rows", "block"), [(128, 64), (48, 16), (8, 8)])
def test_blocks_skip_the_keys_that_none_of_their_rows_sees(rows: int, block: int) -> None:
    found = found_in(HIDDEN.replace("{rows}", str(rows)))
    assert found is not None
    schedule, form = found
    assert schedule.block == block and form.seen is not None


def test_sums_share_the_dots_of_their_weights() -> None:
    found = found_in(SUMS.replace("{first}", "weight * %v[i0*2880 + i2 + r0*32]"))
    assert found is not None
    form = found[1]
    assert len(form.dots) == 1
    assert [each.result for each in form.sums] == ["a", "b"]
    assert form.softmax is None


@pytest.mark.parametrize(
    "schedule",
    [
        CpuAttention("i2", 64),
        CpuAttention("i1", 64, "i2"),
        CpuAttention("i2", 64, "i3"),
        CpuAttention("i2", 64, "i1", "columns"),
    ],
    ids=["rows with keys in common", "rows and columns exchanged", "no such axis", "more rows than a block"],
)
def test_a_schedule_of_other_axes_is_refused(schedule: CpuAttention) -> None:
    text = SOFTMAX.replace("{score}", DOT).replace("{value}", VALUE)
    kernel = attention_in_blocks(
        parse_kernel(text.replace("{queries}", "100").replace("{columns}", "32").strip())
    )
    assert kernel is not None
    with pytest.raises(VerifyError, match="weighted sums"):
        verify(replace(kernel, schedule=schedule))


@pytest.mark.parametrize(
    "changed",
    [
        {"score": "nested_reduce(e0: 32 | %k[e0 + i0*3200 + r0*32])"},
        {"score": "nested_reduce(e0: 32 | %q[e0 + i1*32 + r0] * %k[e0 + r0*32])"},
        {"score": "nested_reduce(e0: 300 | %q[e0 + i1*300] * %k[e0 + r0*300])"},
        {"value": "%v[i0*3200 + i1 + i2 + r0*32]"},
        {"value": "%v[r0]"},
        {"columns": 300},
    ],
    ids=["no dot", "rows that vary with keys", "wide", "values of rows", "no columns", "wide values"],
)
def test_other_sums_are_not_matched(changed: dict[str, str | int]) -> None:
    assert softmax(**changed) is None  # type: ignore[arg-type]


def test_a_sum_that_no_value_is_weighted_in_is_not_matched() -> None:
    assert found_in(SUMS.replace("{first}", "weight")) is None
