"""In-place reuse: kernels that may store a result in the memory of an input that they read last."""

from __future__ import annotations

import pytest

from litz_ir.text import parse_kernel
from litz_scheduler.memory.inplace import InPlaceReuse

HEAD = "kernel k(in %x: f32, in %y: f32, out %a: f32, out %b: f32) {\n  outer [i0: 8]\n"
ROOTS = ("x", "y", "a", "b")

SEPARATE = """\
  phase [] {
    %a[i0] = exp(%x[i0]);
    %b[i0] = %y[i0];
  }
"""
COMBINED = """\
  phase [] {
    %a[i0] = exp(%x[i0]);
    %b[i0] = %x[i0] + %y[i0];
  }
"""
UNDER_A_CONDITION = """\
  phase [] {
    %a[i0] = masked(index(i0) < 4, exp(%x[i0]), 0.0);
    %b[i0] = %x[i0] + %y[i0];
  }
"""
SUMMED_BEFORE = """\
  phase [r0: 64] {
    $s: f32 = reduce.sum { %x[i0 * 64 + r0] };
  }
  phase [r0: 64] {
    %a[i0 * 64 + r0] = %y[i0 * 64 + r0] * $s;
    %b[i0 * 64 + r0] = exp(%y[i0 * 64 + r0]);
  }
"""


def kernel(phases: str) -> tuple[InPlaceReuse, InPlaceReuse]:
    """In-place reuse of a kernel whose threads compute tiles in common, and of one with a thread per point."""
    made = parse_kernel(HEAD + phases + "}\n")
    return InPlaceReuse(made, threads=True), InPlaceReuse(made, threads=False)


@pytest.mark.parametrize("phases", [SEPARATE, COMBINED, UNDER_A_CONDITION, SUMMED_BEFORE])
def test_one_thread_reads_before_it_writes(phases: str) -> None:
    _, alone = kernel(phases)
    assert alone.allows(ROOTS, "x", "a") and alone.allows(ROOTS, "y", "b")
    assert alone.allows(ROOTS, "x", "b") and alone.allows(ROOTS, "y", "a")


def test_of_several_threads_one_may_store_before_another_one_loads() -> None:
    tiled, _ = kernel(SEPARATE)
    assert tiled.allows(ROOTS, "x", "a") and tiled.allows(ROOTS, "y", "b")
    assert not tiled.allows(ROOTS, "y", "a"), "what is stored first would be what is read then"
    assert not tiled.allows(ROOTS, "x", "b"), "what is stored waits for other elements than are read"


def test_what_is_stored_waits_for_what_all_statements_load() -> None:
    tiled, _ = kernel(COMBINED)
    assert tiled.allows(ROOTS, "x", "a") and tiled.allows(ROOTS, "x", "b"), "an element is loaded once"
    assert tiled.allows(ROOTS, "y", "b") and not tiled.allows(ROOTS, "y", "a")
    tiled, _ = kernel(UNDER_A_CONDITION)
    assert tiled.allows(ROOTS, "y", "b")
    assert not tiled.allows(ROOTS, "x", "a") and not tiled.allows(ROOTS, "x", "b"), "it is loaded twice"


def test_what_is_stored_waits_for_the_sums_that_it_knows() -> None:
    tiled, _ = kernel(SUMMED_BEFORE)
    assert tiled.allows(ROOTS, "x", "a"), "it is read to be summed, and the sum is what is stored"
    assert tiled.allows(ROOTS, "y", "a") and tiled.allows(ROOTS, "y", "b")
    assert not tiled.allows(ROOTS, "x", "b"), "nothing that is stored waits for the sum"
