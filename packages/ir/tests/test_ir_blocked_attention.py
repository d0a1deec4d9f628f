"""Kernels that are attention: what is matched, and what is not."""

from __future__ import annotations

import pytest

from litz_ir.plan import BlockedAttention, Kernel, blocked_attention
from litz_ir.text import parse_kernel

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


def softmax(
    score: str = DOT, value: str = VALUE, queries: int = 100, columns: int = 32
) -> BlockedAttention | None:
    text = SOFTMAX.replace("{score}", score).replace("{value}", value)
    return blocked_attention(
        kernel(text.replace("{queries}", str(queries)).replace("{columns}", str(columns)))
    )


def kernel(text: str) -> Kernel:
    return parse_kernel(text.strip())


def test_a_softmax_is_matched_with_its_rows_keys_and_columns() -> None:
    found = softmax()
    assert found is not None
    assert (found.queries.name, found.columns.name, found.block) == ("i1", "i2", 64)
    assert [axis.name for axis in found.batch] == ["i0"]
    assert found.softmax == ("m", "t")
    assert [each.result for each in found.sums] == ["s"]


@pytest.mark.parametrize(("queries", "block"), [(5, 5), (16, 16), (17, 17), (32, 32), (33, 64)])
def test_blocks_have_no_more_rows_than_are_needed(queries: int, block: int) -> None:
    found = softmax(queries=queries)
    assert found is not None
    assert found.block == block


def test_a_row_with_keys_of_its_own_is_a_block() -> None:
    found = softmax("nested_reduce(e0: 32 | %q[e0 + i0*3200 + i1*32] * %k[e0 + i0*3200 + i1*3200 + r0*32])")
    assert found is not None
    assert found.is_few
    assert [axis.name for axis in found.batch] == ["i0", "i1"]


GROUPED = "nested_reduce(e0: 32 | %q[e0 + i0*3200 + i1*32] * %k[e0 + i0//2*3200 + r0*32])"


@pytest.mark.parametrize(("queries", "rows"), [(1, 2), (8, 16), (16, 32), (17, 17), (100, 64)])
def test_heads_of_a_group_share_keys_where_they_are_few(queries: int, rows: int) -> None:
    score = GROUPED if queries > 1 else GROUPED.replace(" + i1*32", "")
    found = softmax(score, "%v[i0//2*3200 + i2 + r0*32]", queries=queries)
    assert found is not None
    assert found.block == rows
    assert found.is_few == (rows <= 32)
    shared = rows == 2 * queries
    sizes = [axis.size for axis in found.batch if axis.size != 1]
    assert sizes == ([2] if shared else [4])


def test_sums_share_the_dots_of_their_weights() -> None:
    found = blocked_attention(kernel(SUMS.replace("{first}", "weight * %v[i0*2880 + i2 + r0*32]")))
    assert found is not None
    assert len(found.dots) == 1
    assert [each.result for each in found.sums] == ["a", "b"]
    assert found.softmax is None


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
    assert blocked_attention(kernel(SUMS.replace("{first}", "weight"))) is None
