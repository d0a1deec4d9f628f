"""Schedules: their text, and the verifier's errors for those that do not fit their kernel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from litz_ir.errors import CodegenError, ParseError, VerifyError
from litz_ir.plan.horizontal_fusion import schedules_of, with_schedules
from litz_ir.plan.schedule import (
    Attention,
    CpuLoops,
    Foreach,
    InnerTile,
    LookbackScan,
    Matmul,
    Tile,
    TileLoops,
    TileRequest,
    cluster_size,
    cpu_loops,
    launched_cluster,
    scan_segment,
)
from litz_ir.plan.verify.kernel import verify_kernel
from litz_ir.text import to_text
from litz_ir.text.parsing.kernel import parse_kernel
from litz_ir.text.schedules import parse_schedule, print_schedule

ROWS = """
kernel rows(in %a: f32, out %b: f32) {{
  schedule {schedule}
  outer [i0: 6, i1: 1]
  phase [r0: 8] {{ $m: f32 = reduce.max {{ %a[i0*8 + r0] }}; }}
  phase [] {{ %b[i0] = $m; }}
}}
"""

LARGE = """
kernel large(in %a: f32, out %b: f32) {{
  schedule {schedule}
  outer [i0: {size}]
  phase [] {{ %b[i0] = %a[0]; }}
}}
"""

MAP = """
kernel map(in %a: f32, out %b: f32) {{
  schedule {schedule}
  outer [i0: 6]
  phase [j: 8] {{ %b[i0*8 + j] = %a[i0*8 + j]; }}
}}
"""

MATMUL = """
kernel product(in %a: f32, in %b: f32, out %c: f32) {{
  schedule {schedule}
  outer [i: 64, j: 64]
  phase [k: 64] {{ $s: f32 = reduce.sum {{ %a[i*64 + k] * %b[k*64 + j] }}; }}
  phase [] {{ %c[i*64 + j] = $s; }}
}}
"""

FOREACH = """
kernel both(in %a: f32, out %b: f32) {{
  schedule {schedule}
  kernel one(in %x: f32, out %y: f32) {{
    schedule {subkernel}
    outer [i: 8]
    phase [] {{ %y[i] = %x[i]; }}
  }}
    invoke (%a, %b)
}}
"""

RIGHT = [
    ROWS.format(schedule="tile_loops outer((i0: 2)) inner((r0: 8) persistent, point) warps 1"),
    ROWS.format(schedule="tile_loops outer((i0), (i1)) inner((r0: 4), point) warps 2 stages 3"),
    ROWS.format(schedule="tile_loops outer((i0, i1: 4)) inner((r0: 4) persistent, point) warps 2"),
    ROWS.format(schedule="tile_loops outer((i0: 2)) inner((r0: 4) evict_last(%a), point) warps 1"),
    MAP.format(schedule="tile_loops outer((i0, j: 16)) inner(point) warps 1"),
    MATMUL.format(schedule="matmul rows(i: 64) columns(j: 32) summed(k: 16) warps 4 stages 3 grid 132"),
    FOREACH.format(schedule="foreach warps 4", subkernel="tile_loops outer((i: 8)) inner(point) warps 4"),
    LARGE.format(size=1 << 31, schedule="tile_loops outer((i0: 128)) inner(point) warps 4 index_bits 32"),
    LARGE.format(size=1 << 32, schedule="tile_loops outer((i0: 128)) inner(point) warps 4"),
    FOREACH.format(schedule="tile_request", subkernel="tile_request blocks(i: 8) warps 4"),
]

WRONG = {
    "a request for no axis": (ROWS, "tile_request blocks(j: 4)", "which is not an axis"),
    "an empty block": (ROWS, "tile_request blocks(i0: 0)", "the block of i0 is 0"),
    "a phase without a cover": (ROWS, "tile_loops outer((i0: 2)) inner(point) warps 1", "1 of 2 phases"),
    "another phase's axes": (
        ROWS,
        "tile_loops outer((i0: 2)) inner(point, (r0: 8)) warps 1",
        "are not the phase's",
    ),
    "no power of two": (ROWS, "tile_loops outer((i0: 3)) inner((r0: 8), point) warps 1", "power of two"),
    "an axis twice": (
        ROWS,
        "tile_loops outer((i0), (i0)) inner((r0: 8), point) warps 1",
        "in another dimension",
    ),
    "an axis that is left out": (
        ROWS,
        "tile_loops outer((i1)) inner((r0: 8), point) warps 1",
        "no dimension",
    ),
    "loads of no phase": (
        ROWS,
        "tile_loops outer((i0)) inner((r0: 8), point) warps 1 prefetch(2)",
        "loads of phase 2 are prefetched",
    ),
    "no stage": (ROWS, "tile_loops outer((i0)) inner((r0: 8), point) warps 1 stages 0", "stages is 0"),
    "a cluster with fewer tiles": (
        ROWS,
        "tile_loops outer((i0: 8)) inner((r0: 1), point) warps 1 row_cluster 2",
        "2 thread blocks do not have the tiles",
    ),
    "a cluster of no tiles": (
        ROWS,
        "tile_loops outer() inner((r0: 1), point) warps 1 row_cluster 2",
        "no dimension of the tile|do not have the tiles",
    ),
    "a cluster with several rows": (
        ROWS,
        "tile_loops outer((i0: 4)) inner((r0: 2), point) warps 1 row_cluster 2",
        "more than one row",
    ),
    "a pointwise axis that is left out": (MAP, "tile_loops outer((i0)) inner(point) warps 1", "axis j"),
    "other summed axes": (
        MATMUL,
        "matmul rows(i: 64) columns(j: 32) summed(j: 16) warps 4 stages 3",
        "those of no phase",
    ),
    "rows that are none": (
        MATMUL,
        "matmul rows(k: 64) columns(j: 32) summed(k: 16) warps 4 stages 3",
        "not an outer axis",
    ),
    "a hint for no buffer": (
        ROWS,
        "tile_loops outer((i0)) inner((r0: 4) evict_first(%m), point) warps 1",
        "hint is given for m",
    ),
    "two hints for a buffer": (
        ROWS,
        "tile_loops outer((i0)) inner((r0: 4) evict_first(%a) evict_last(%a), point) warps 1",
        "has two",
    ),
    "a hint without a loop": (
        ROWS,
        "tile_loops outer((i0)) inner((r0: 8) persistent evict_last(%a), point) warps 1",
        "no loop over tiles loads",
    ),
    "an empty group": (
        MATMUL,
        "matmul rows(i: 64) columns(j: 32) summed(k: 16) warps 4 stages 3 group 0",
        "group is 0",
    ),
    "indices of no width": (
        MATMUL,
        "matmul rows(i: 64) columns(j: 32) summed(k: 16) warps 4 stages 3 index_bits 16",
        "indices have 16 bits",
    ),
    "subkernels that are not there": (ROWS, "foreach warps 4", "without subkernels"),
}


@pytest.mark.parametrize("text", RIGHT)
def test_a_schedule_that_suits_its_kernel_is_accepted(text: str) -> None:
    kernel = parse_kernel(text)
    verify_kernel(kernel)
    assert parse_kernel(to_text(kernel)) == kernel


@pytest.mark.parametrize("name", WRONG)
def test_a_schedule_that_does_not_suit_its_kernel_is_refused(name: str) -> None:
    text, schedule, message = WRONG[name]
    with pytest.raises(VerifyError, match=message) as caught:
        verify_kernel(parse_kernel(text.format(schedule=schedule)))
    assert caught.value.check == "schedule"


def test_narrow_indices_hold_every_stored_element() -> None:
    schedule = "tile_loops outer((i0: 128)) inner(point) warps 4 index_bits 32"
    with pytest.raises(VerifyError, match="indices have 32 bits, but element 2147483648 of b is stored"):
        verify_kernel(parse_kernel(LARGE.format(size=(1 << 31) + 1, schedule=schedule)))


@pytest.mark.parametrize(
    ("own", "subkernel"),
    [
        ("foreach warps 4", "tile_loops outer((i: 8)) inner(point) warps 8"),
        ("foreach warps 4", "tile_request"),
        ("lookback_scan segment 16 warps 4", "tile_loops outer((i: 8)) inner(point) warps 4"),
    ],
)
def test_subkernels_have_the_warps_of_their_launch(own: str, subkernel: str) -> None:
    with pytest.raises(VerifyError) as caught:
        verify_kernel(parse_kernel(FOREACH.format(schedule=own, subkernel=subkernel)))
    assert caught.value.check == "schedule"


def test_the_text_has_the_form_and_values_that_are_not_defaults() -> None:
    assert print_schedule(CpuLoops(("i0",), "r0")) == "cpu_loops parallel(i0) vector r0"
    assert print_schedule(TileRequest(cluster=8)) == "tile_request cluster 8"
    loops = TileLoops((Tile(("i0",)), Tile(("i1",), 64)), (None, InnerTile(("r0",), 32, True)), 4, cluster=2)
    text = "tile_loops outer((i0), (i1: 64)) inner(point, (r0: 32) persistent) warps 4 cluster 2"
    assert print_schedule(loops) == text
    assert parse_schedule(text) == loops
    divided = TileLoops((Tile(("i0",), 32),), (None,), 4, row_cluster=3)
    text = "tile_loops outer((i0: 32)) inner(point) warps 4 row_cluster 3"
    assert print_schedule(divided) == text
    assert parse_schedule(text) == divided
    assert print_schedule(TileRequest(row_cluster=3)) == "tile_request row_cluster 3"
    assert parse_schedule("tile_request row_cluster 3") == TileRequest(row_cluster=3)
    matmul = Matmul(("b",), Tile(("i",), 64), Tile(("j",), 32), Tile(("k",), 16), 4, 3, 0, ("left",), (0, 2))
    text = "matmul batch(b) rows(i: 64) columns(j: 32) summed(k: 16) warps 4 stages 3 descriptors(left) prefetch(0, 2)"
    assert print_schedule(matmul) == text
    assert parse_schedule(f"{text} group 8") == replace(matmul, group=8)
    attention = Attention(
        (), Tile(("m",), 64), Tile(("d",), 64), InnerTile(("n",), 64), 4, 3, order="last_rows"
    )
    text = "attention rows(m: 64) columns(d: 64) summed(n: 64) warps 4 stages 3 order last_rows"
    assert print_schedule(attention) == text
    assert parse_schedule(text) == attention
    described = replace(attention, descriptors=True)
    assert print_schedule(described) == f"{text} descriptors"
    assert parse_schedule(f"{text} descriptors index_bits 32") == replace(described, index_bits=32)
    tile = InnerTile(("r",), 4, serial=("s",), evict_first=("a",), evict_last=("b", "c"))
    loops = TileLoops((), (tile,), 1)
    text = "tile_loops outer() inner((r: 4) serial(s) evict_first(%a) evict_last(%b, %c)) warps 1"
    assert print_schedule(loops) == text
    assert parse_schedule(text) == loops
    assert parse_schedule(f"{text} index_bits 32") == replace(loops, index_bits=32)
    assert print_schedule(LookbackScan(16, 8, 32)) == "lookback_scan segment 16 warps 8 index_bits 32"


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(ParseError, match="the form of a schedule"):
        parse_schedule("blocks(i0: 4)")


def test_cluster_and_segment_are_those_of_forms_that_have_them() -> None:
    loops = TileLoops((), (), 4, cluster=4)
    assert [cluster_size(each) for each in (CpuLoops(), TileRequest(cluster=8), loops, Foreach(4))] == [
        1,
        8,
        4,
        1,
    ]
    divided = TileLoops((), (), 4, row_cluster=2)
    assert [launched_cluster(each) for each in (loops, divided, TileRequest(), Foreach(4))] == [4, 2, 1, 1]
    assert [scan_segment(each) for each in (CpuLoops(), TileRequest(segment=8), LookbackScan(16, 8))] == [
        0,
        8,
        16,
    ]


def test_a_cpu_takes_no_schedule_of_a_gpu() -> None:
    assert cpu_loops(CpuLoops(unroll=2)).unroll == 2
    with pytest.raises(CodegenError, match="TileRequest"):
        cpu_loops(TileRequest())


def test_schedules_of_subkernels_follow_that_of_their_launch() -> None:
    loops = TileLoops((Tile(("i",), 8),), (None,), 4)
    kernel = parse_kernel(FOREACH.format(schedule="tile_request", subkernel="tile_request"))
    assert schedules_of(with_schedules(kernel, (Foreach(4), loops))) == (Foreach(4), loops)
