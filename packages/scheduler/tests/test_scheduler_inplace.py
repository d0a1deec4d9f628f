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


def test_one_of_several_threads_may_store_before_another_one_loads() -> None:
    tiled, _ = kernel(SEPARATE)
    assert tiled.allows(ROOTS, "x", "a") and tiled.allows(ROOTS, "y", "b")
    assert not tiled.allows(ROOTS, "y", "a"), "a thread may store an element before another one loads it"
    assert not tiled.allows(ROOTS, "x", "b"), (
        "the stored value does not depend on the element that is overwritten"
    )


def test_a_stored_value_depends_on_the_loads_of_all_statements() -> None:
    tiled, _ = kernel(COMBINED)
    assert tiled.allows(ROOTS, "x", "a") and tiled.allows(ROOTS, "x", "b"), (
        "an element is loaded once for all statements"
    )
    assert tiled.allows(ROOTS, "y", "b") and not tiled.allows(ROOTS, "y", "a")
    tiled, _ = kernel(UNDER_A_CONDITION)
    assert tiled.allows(ROOTS, "y", "b")
    assert not tiled.allows(ROOTS, "x", "a") and not tiled.allows(ROOTS, "x", "b"), "it is loaded twice"


def test_a_stored_value_depends_on_loads_through_its_sums() -> None:
    tiled, _ = kernel(SUMMED_BEFORE)
    assert tiled.allows(ROOTS, "x", "a"), "all loads are for the sum, on which the stored value depends"
    assert tiled.allows(ROOTS, "y", "a") and tiled.allows(ROOTS, "y", "b")
    assert not tiled.allows(ROOTS, "x", "b"), "the stored value does not depend on the sum"
