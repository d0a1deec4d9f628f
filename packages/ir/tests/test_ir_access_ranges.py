"""The elements of each buffer that a kernel accesses, and the bytes that it moves."""

from __future__ import annotations

import pytest

from litz_ir.plan.accessed_ranges import AccessRange, access_ranges
from litz_ir.text import parse_kernel

SOFTMAX = """
kernel softmax(in %x: f32, out %o: f32) {
  outer [i0: 64]
  phase [r0: 100] {
    $m: f32 = reduce.max { %x[i0*100 + r0 + 4] };
  }
  phase [r0: 100] {
    %o[i0*100 + r0] = %x[i0*100 + r0 + 4] - $m;
  }
}
"""

LOOKUP = """
kernel lookup(in %table: f32, in %at: i64, out %o: f32) {
  symbols { s0: int from 1 }
  outer [i0: s0, i1: 8]
  phase [] {
    %o[i0*8 + i1] = %table[indirect(%at[i0], size=50, raised)*8 + i1];
  }
}
"""

COLLECT = """
kernel collect(in %at: i64, inout %o: f32) {
  outer [i0: 1000]
  phase [] {
    %o[indirect(%at[i0], size=10, assumed)] add = 1.0;
  }
}
"""


def test_every_element_counts_once() -> None:
    found = access_ranges(parse_kernel(SOFTMAX), {})
    assert found == {"x": AccessRange(4, 6403, 25600, 0), "o": AccessRange(0, 6399, 0, 25600)}


@pytest.mark.parametrize(("rows", "of_table"), [(3, 3 * 32), (1000, 50 * 32)])
def test_an_indirect_load_reads_at_most_the_table(rows: int, of_table: int) -> None:
    found = access_ranges(parse_kernel(LOOKUP), {"s0": rows})
    assert found["table"] == AccessRange(0, 399, of_table, 0)
    assert (found["at"].read, found["o"].written) == (rows * 8, rows * 32)


def test_a_combining_store_reads_and_writes() -> None:
    assert access_ranges(parse_kernel(COLLECT), {})["o"] == AccessRange(0, 9, 40, 40)


def test_an_unused_parameter_has_no_range() -> None:
    unread = SOFTMAX.replace("%o: f32)", "%o: f32, in %n: f32)")
    assert access_ranges(parse_kernel(unread), {})["n"] == AccessRange(0, -1, 0, 0)
