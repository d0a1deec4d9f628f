"""The verifier of plans finds accesses outside of buffers, reads of what no step wrote, and impossible numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from litz_ir.errors import VerifyError
from litz_ir.loops import Layout, TensorType
from litz_ir.plan import Plan
from litz_ir.symbols import SymbolInfo, SymbolTable, symbol
from litz_ir.text import from_text
from litz_ir.verifier import verify

COPY = """
plan p on cpu "any" (%x: f32[64, 32] fixed) -> (%o) {
  storage a: 8192
  storage b: 256
  buffer %x: f32[64, 32] fixed
  buffer %t: f32[64] in b
  buffer %o: f32[64, 32] in a
  kernel sums(in %p0: f32, out %p1: f32) {
    outer [i0: 64]
    phase [r0: 32] { $s: f32 = reduce.sum { %p0[i0*32 + r0] }; }
    phase [] { %p1[i0] = $s; }
  }
  kernel scale(in %p0: f32, in %p1: f32, out %p2: f32) {
    outer [i0: 64, i1: 32]
    phase [] { %p2[i0*32 + i1] = %p0[i0*32 + i1] * %p1[i0]; }
  }
  allocate b
  launch sums(%x, %t)
  allocate a
  launch scale(%x, %t, %o)
  free b
}
"""


def plan(text: str) -> Plan:
    data = from_text(text)
    assert isinstance(data, Plan)
    return data


def refused(text: str) -> VerifyError:
    with pytest.raises(VerifyError) as caught:
        verify(plan(text))
    return caught.value


def test_the_plan_is_right() -> None:
    verify(plan(COPY))


OUTSIDE = [
    ("outer [i0: 64, i1: 32]", "outer [i0: 65, i1: 32]", "scale", "%p1 is read at i0 along", "64"),
    ("outer [i0: 64, i1: 32]", "outer [i0: 5000, i1: 32]", "scale", "%p1 is read at i0 along", "64"),
    ("phase [r0: 32]", "phase [r0: 33]", "sums", "%p0 is read at i0*32 + r0", "2048"),
    ("* %p1[i0]", "* %p1[i1 + 33]", "scale", "%p1 is read at i1 + 33", "64"),
    ("* %p1[i0]", "* %p1[2080]", "scale", "%p1 is read at 2080", "64"),
    ("* %p1[i0]", "* %p1[i0 - 1]", "scale", "%p1 is read at i0 - 1", "64"),
    ("%p1[i0] = $s", "%p1[i0 + 1] = $s", "sums", "the offset i0 + 1 is outside the parameter %p1", "64"),
    ("%p1[i0] = $s", "%p1[i0*2] = $s", "sums", "the offset i0*2 is outside the parameter %p1", "64"),
    ("buffer %t: f32[64] in b", "buffer %t: f32[32] in b", "sums", "outside the parameter %p1", "32"),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "kernel", "access", "elements"), OUTSIDE)
def test_an_access_outside_of_a_buffer(
    right: str, wrong: str, kernel: str, access: str, elements: str
) -> None:
    assert right in COPY
    error = refused(COPY.replace(right, wrong))
    assert error.check == "index-bounds"
    assert error.node.startswith(kernel)
    assert access in error.message and elements in error.message


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("* %p1[i0]", "* masked(index(i0) < 63, %p1[i0 + 1], 0.0)"),
        ("* %p1[i0]", "* %p1[i0 // 2]"),
        ("outer [i0: 64, i1: 32]", "outer [i0: 64, i1: 0]"),
        ("%o: f32[64, 32]", "%o: f32[64, 32] strides(64, 1)"),
        ("%t: f32[64]", "%t: f32[64] offset 8"),
    ],
)
def test_an_access_that_may_be_inside_is_accepted(right: str, wrong: str) -> None:
    assert right in COPY
    text = COPY.replace("storage a: 8192", "storage a: 65536").replace("storage b: 256", "storage b: 4096")
    verify(plan(text.replace(right, wrong)))


def test_every_launch_must_give_enough_elements() -> None:
    text = COPY.replace("  free b\n", "  allocate c launch sums(%x, %u)\n  free b\n")
    text = text.replace("  storage b: 256\n", "  storage b: 256\n  storage c: 256\n")
    text = text.replace("  kernel sums", "  buffer %u: f32[63] in c\n  kernel sums")
    assert "%p1 of 63 elements" in refused(text).message


def test_a_buffer_of_unknown_size_is_no_error() -> None:
    text = COPY.replace("  storage a", "  symbols { n: int from 1 }\n  storage a")
    text = text.replace("  allocate b", "  define n from size 0 of %x\n  allocate b")
    text = text.replace("(%x: f32[64, 32] fixed)", "(%x: f32[n, 32] fixed)")
    verify(plan(text.replace("buffer %x: f32[64, 32] fixed", "buffer %x: f32[n, 32] fixed")))


FUSED = """
plan p on cuda "any" (%x: f32[8], %y: f32[4]) -> (%x, %y) {
  buffer %x: f32[8]
  buffer %y: f32[4]
  kernel k(inout %a: f32, inout %b: f32) {
    schedule tile_request
    kernel one(inout %p: f32) {
      schedule tile_request
      outer [i0: 4]
      phase [] { %p[i0] = %p[i0] + 1.0; }
    }
    invoke (%a)
    invoke (%b)
  }
  launch k(%x, %y)
}
"""


def test_an_access_of_a_subkernel() -> None:
    verify(plan(FUSED))
    error = refused(FUSED.replace("outer [i0: 4]", "outer [i0: 5]"))
    assert error.check == "index-bounds" and error.node.startswith("one") and "4" in error.message


# --- contents -------------------------------------------------------------------------------------------


def test_an_output_that_no_step_writes() -> None:
    error = refused(COPY.replace("  launch scale(%x, %t, %o)\n", ""))
    assert error.check == "written-before" and "returns %o" in error.message


def test_a_launch_reads_what_no_step_wrote() -> None:
    error = refused(COPY.replace("  launch sums(%x, %t)\n", ""))
    assert error.check == "written-before" and error.node == "launch scale" and "%t is read" in error.message


def test_a_check_reads_what_no_step_wrote() -> None:
    text = COPY.replace(
        "  launch sums(%x, %t)\n", '  check { %t[0] < 1.0 } "must hold"\n  launch sums(%x, %t)\n'
    )
    assert refused(text).node == "check"


def test_contents_of_inputs_calls_and_empty_buffers() -> None:
    without = COPY.replace("  launch scale(%x, %t, %o)\n", "")
    verify(plan(without.replace("buffer %o: f32[64, 32] in a", "buffer %o: f32[64, 32] shares %x")))
    verify(plan(without.replace("  free b\n", "  call fill(%o)\n  free b\n")))
    verify(plan(without.replace("%o: f32[64, 32] in a", "%o: f32[0, 32] in a")))
    call = without.replace("buffer %o: f32[64, 32] in a", "buffer %o: f32[64, 32]")
    verify(plan(call.replace("  free b\n", "  %o = call make()\n  free b\n")))


def test_a_kernel_may_write_before_it_reads() -> None:
    kernel = """kernel sums(in %p0: f32, inout %p1: f32) {
    outer [i0: 64]
    phase [r0: 32] { $s: f32 = reduce.sum { %p0[i0*32 + r0] }; }
    phase [] { %p1[i0] = $s; }
    phase [] { %p1[i0] = %p1[i0] + 1.0; }
  }
  kernel scale"""
    begin, end = COPY.index("kernel sums"), COPY.index("kernel scale")
    text = COPY[:begin] + kernel + COPY[end + len("kernel scale") :]
    verify(plan(text))
    error = refused(text.replace("phase [] { %p1[i0] = $s; }", "phase [] { %p1[i0] add = $s; }"))
    assert error.check == "written-before" and "%t" in error.message


REGION = """
plan p on cpu "any" (%x: f32[8]) -> (%y) {
  storage a: 32
  buffer %x: f32[8]
  buffer %t: f32[8] in a
  buffer %y: f32[8]
  plan q on cpu "any" (%u: f32[8]) -> (%u) {
    buffer %u: f32[8]
    kernel one(out %p: f32) { outer [i0: 8] phase [] { %p[i0] = 1.0; } }
    launch one(%u)
  }
  allocate a
  %y = region.invoke(%t) { q }
}
"""


def test_the_subplan_of_a_region_may_fill_an_argument() -> None:
    verify(plan(REGION))
    error = refused(REGION.replace("    launch one(%u)\n", ""))
    assert error.check == "written-before" and error.node == "region.invoke"
    assert refused(REGION.replace("{ q }", "{ }")).check == "region"


# --- numbers --------------------------------------------------------------------------------------------


def test_numbers_of_a_plan_are_not_negative() -> None:
    right = plan(COPY)
    x: Any = right.inputs[0]
    o = right.placement("o")
    long = TensorType(o.type.dtype, (-64, 32), o.type.layout, o.type.device)
    bare = replace(o.type, layout=Layout((1,)))
    n = symbol("n")
    reversed_ = replace(o.type, layout=Layout((-n, 1)))
    symbols = SymbolTable((SymbolInfo("n", low=2),))
    wrong = {
        "%o has the stride -n": replace(
            right, symbols=symbols, buffers=(*right.buffers[:-1], ("o", replace(o, type=reversed_)))
        ),
        "the peak -1": replace(right, peak=-1),
        "%x has the size -64": replace(right, inputs=(replace(x, type=long),)),
        "%o has the size -64": replace(right, buffers=(*right.buffers[:-1], ("o", replace(o, type=long)))),
        "%o has the offset -8": replace(right, buffers=(*right.buffers[:-1], ("o", replace(o, offset=-8)))),
        "%o has 2 dimensions and 1 strides": replace(
            right, buffers=(*right.buffers[:-1], ("o", replace(o, type=bare)))
        ),
        "b has the bytes -1": replace(
            right, storages=(right.storages[0], replace(right.storages[1], nbytes=-1))
        ),
    }
    for message, data in wrong.items():
        with pytest.raises(VerifyError) as caught:
            verify(data)
        assert caught.value.check == "type" and message in caught.value.message
