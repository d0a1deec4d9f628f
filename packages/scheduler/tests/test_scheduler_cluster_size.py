"""Cluster sizes: rows and columns that several thread blocks of a GPU reduce in cooperation."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scheduler_builder import GPU_LIKE, assert_same, plan_of, with_numbers

from litz_ir.loops import LoopGraph
from litz_ir.plan import Kernel, Launch, Plan, TileRequest, cluster_size
from litz_ir.text import from_text
from litz_scheduler import ReductionWork, SchedulerOptions, ThresholdCosts
from litz_scheduler.reductions.chunks_of_rows import chunks_of_rows
from litz_scheduler.schedules.row_cluster import row_cluster

MACHINE = with_numbers(GPU_LIKE, sm_count=8, max_cluster_size=8)
SMALL = SchedulerOptions(gpu_split_bytes=64, long_row=128, tall_column=64)
ROWS = replace(SMALL, long_row=1024)


def graph_of(text: str) -> LoopGraph:
    graph = from_text(text)
    assert isinstance(graph, LoopGraph)
    return graph


def softmax(rows: int, length: int) -> LoopGraph:
    return graph_of(f"""
    graph softmax(%x: f32[{rows}, {length}] fixed) -> (%o) {{
      %m = reduce.max f32[i0: {rows}, i1: 1 | r0: {length}] {{ %x[i0, r0] }}
      %e = pointwise f32[i0: {rows}, i1: {length}] {{ exp(%x[i0, i1] - %m[i0, 0]) }}
      %z = reduce.sum f32[i0: {rows}, i1: 1 | r0: {length}] {{ %e[i0, r0] }}
      %o = pointwise f32[i0: {rows}, i1: {length}] fixed {{ %e[i0, i1] / %z[i0, 0] }}
    }}""")


def gradient(rows: int, length: int) -> LoopGraph:
    """The gradient of a softmax, which reads two values of each point again."""
    return graph_of(f"""
    graph gradient(%g: f32[{rows}, {length}] fixed, %y: f32[{rows}, {length}] fixed) -> (%o) {{
      %s = reduce.sum f32[i0: {rows}, i1: 1 | r0: {length}] {{ %g[i0, r0] * %y[i0, r0] }}
      %o = pointwise f32[i0: {rows}, i1: {length}] fixed {{ (%g[i0, i1] - %s[i0, 0]) * %y[i0, i1] }}
    }}""")


def weighted(rows: int, length: int) -> LoopGraph:
    """Rows over their sums, times a weight for each column."""
    return graph_of(f"""
    graph weighted(%x: f32[{rows}, {length}] fixed, %w: f32[{length}] fixed) -> (%o) {{
      %s = reduce.sum f32[i0: {rows}, i1: 1 | r0: {length}] {{ %x[i0, r0] }}
      %o = pointwise f32[i0: {rows}, i1: {length}] fixed {{ %x[i0, i1] / %s[i0, 0] * %w[i1] }}
    }}""")


def total(rows: int, length: int, along: int) -> LoopGraph:
    shape, at = ((rows, length), "r0, i0") if along == 0 else ((length, rows), "i0, r0")
    return graph_of(f"""
    graph total(%x: f32[{shape[0]}, {shape[1]}] fixed) -> (%o) {{
      %o = reduce.sum f32[i0: {length} | r0: {rows}] fixed {{ %x[{at}] }}
    }}""")


def only(plan: Plan) -> Kernel:
    (kernel,) = plan.kernels
    return kernel


@pytest.mark.parametrize(
    ("length", "size"), [(1024, 1), (1025, 4), (2048, 4), (4096, 8), (4097, 8), (16385, 1)]
)
def test_a_row_that_is_read_again_stays_in_a_cluster(length: int, size: int) -> None:
    graph = softmax(64, length)
    plan = plan_of(graph, MACHINE, ROWS)
    assert cluster_size(only(plan).schedule) == size
    assert_same(graph, plan)


@pytest.mark.parametrize(
    ("graph", "size"),
    [
        (softmax(64, 16384), 16),
        (weighted(64, 16384), 8),
        (weighted(64, 20000), 16),
        (weighted(64, 32769), 1),
        (gradient(64, 8192), 16),
        (gradient(64, 16385), 1),
    ],
)
def test_rows_with_weights_are_in_small_clusters_if_these_hold_them_and_all_loaded_rows_fit(
    graph: LoopGraph, size: int
) -> None:
    machine = with_numbers(MACHINE, max_cluster_size=16)
    assert cluster_size(only(plan_of(graph, machine, ROWS)).schedule) == size


def test_a_cluster_has_a_workspace() -> None:
    plan = plan_of(softmax(64, 4096), with_numbers(MACHINE, l2_bytes=1 << 14), ROWS)
    (launch,) = (step for step in plan.steps if isinstance(step, Launch))
    names = dict(zip((each.access for each in only(plan).parameters), launch.buffers, strict=True))
    workspace = plan.placement(names["workspace"])
    # a maximum and a sum for each of 64 rows and 8 thread blocks
    assert workspace.type.shape == (2 * 64 * 8,) and workspace.storage is not None
    assert [each.note for each in plan.decisions if each.reason.key == "reduce.cluster"] == ["8 programs"]


@pytest.mark.parametrize(
    ("along", "rows", "length", "size"), [(1, 4096, 4, 8), (0, 4096, 128, 8), (0, 640, 256, 4)]
)
def test_few_results_are_one_kernel(along: int, rows: int, length: int, size: int) -> None:
    graph = total(rows, length, along)
    plan = plan_of(graph, MACHINE, SMALL)
    assert cluster_size(only(plan).schedule) == size
    assert_same(graph, plan)


@pytest.mark.parametrize(("dtype", "size"), [("f32", 4), ("bf16", 8)])
def test_tiles_of_columns_have_a_line_of_memory_however_narrow_their_elements_are(
    dtype: str, size: int
) -> None:
    graph = graph_of(f"""
    graph total(%x: {dtype}[4096, 256] fixed) -> (%o) {{
      %o = reduce.sum f32[i0: 256 | r0: 4096] fixed {{ f32(%x[r0, i0]) }}
    }}""")
    assert cluster_size(only(plan_of(graph, MACHINE, SMALL)).schedule) == size


def test_columns_whose_rows_are_no_multiple_of_16_bytes_are_divided_among_two_kernels() -> None:
    aligned, odd = (plan_of(total(640, length, 0), MACHINE, SMALL) for length in (256, 255))
    assert cluster_size(only(aligned).schedule) == 4
    assert [cluster_size(kernel.schedule) for kernel in odd.kernels] == [1, 1]
    assert [axis.size for axis in odd.kernels[0].outer][-2:] == [32, 255]
    assert_same(total(640, 255, 0), odd)


def test_unaligned_columns_are_divided_until_their_thread_blocks_fill_the_device() -> None:
    machine, costs = with_numbers(GPU_LIKE, sm_count=132, max_cluster_size=16), ThresholdCosts()

    def splits(columns: int, aligned: bool) -> int:
        return costs.splits(ReductionWork(columns, 4096, 4, 4, True, aligned), machine)

    assert [splits(each, True) for each in (7203, 17000)] == [0, 0]
    assert [splits(each, False) for each in (63, 64, 7203, 15000, 17000)] == [8, 16, 16, 8, 0]


def test_a_matmul_has_no_cluster() -> None:
    graph = graph_of("""
    graph matmul(%x: f32[3, 640] fixed, %y: f32[3, 640] fixed) -> (%o) {
      %o = reduce.sum f32[i0: 3, i1: 3 | r0: 640] fixed { %x[i0, r0] * %y[i1, r0] }
    }""")
    plan = plan_of(graph, MACHINE, SMALL)
    assert all(cluster_size(kernel.schedule) == 1 for kernel in plan.kernels)
    assert_same(graph, plan)


@pytest.mark.parametrize("graph", [total(1 << 16, 1, 1), total(1 << 12, 4, 0)])
def test_reductions_too_long_for_a_cluster_are_split(graph: LoopGraph) -> None:
    plan = plan_of(graph, with_numbers(MACHINE, sm_count=64), SMALL)
    assert len(plan.kernels) == 2
    assert_same(graph, plan)


@pytest.mark.parametrize("graph", [softmax(64, 4096), total(640, 64, 0)])
def test_no_clusters_where_the_device_or_an_option_forbids_them(graph: LoopGraph) -> None:
    small = with_numbers(MACHINE, l2_bytes=1 << 14)
    for machine, options in ((GPU_LIKE, ROWS), (small, replace(ROWS, max_cluster_size=1))):
        plan = plan_of(graph, machine, options)
        assert all(cluster_size(kernel.schedule) == 1 for kernel in plan.kernels)
        assert_same(graph, plan)


NARROW = {(8192, 2): 1, (8193, 1): 2, (16384, 2): 2, (16385, 2): 3, (131072, 2): 16, (131073, 2): 1}
WIDE = {
    (6144, 2): 1,
    (8192, 1): 1,
    (8192, 2): 2,
    (12288, 1): 1,
    (12289, 1): 2,
    (16384, 2): 2,
    (20480, 2): 5,
    (65536, 1): 16,
    (65537, 1): 9,
    (131073, 1): 1,
}


@pytest.mark.parametrize(("itemsize", "sizes"), [(2, NARROW), (4, WIDE)])
def test_thread_blocks_that_hold_a_row_and_sums_of_its_columns(
    itemsize: int, sizes: dict[tuple[int, int], int]
) -> None:
    found = {key: row_cluster(key[0], itemsize, key[1], 16) for key in sizes}
    assert found == sizes
    assert row_cluster(16384, itemsize, 2, 1) == 1, "without clusters"


@pytest.mark.parametrize(
    ("rows", "length", "cluster", "chunks"),
    [
        (8192, 16384, 2, 64),  # 66 clusters run at a time
        (2048, 65536, 8, 64),  # 14, in five rounds
        (1024, 65536, 8, 32),  # chunks of 32 rows
        (512, 65536, 8, 0),  # 16 take two rounds
        (1024, 131072, 16, 32),
        (128, 65536, 8, 0),
        (8191, 16384, 2, 0),
    ],
)
def test_chunks_fill_rounds_of_clusters(rows: int, length: int, cluster: int, chunks: int) -> None:
    machine = with_numbers(GPU_LIKE, sm_count=132, max_cluster_size=16)
    assert chunks_of_rows(rows, length, machine, cluster) == chunks


def test_a_cluster_divides_the_rows_of_a_kernel_that_sums_columns_too() -> None:
    graph = graph_of("""
    graph gradient(%x: f32[192, 20480] fixed) -> (%dx, %dw) {
      %total = reduce.sum f32[i0: 192, i1: 1 | r0: 20480] { %x[i0, r0] }
      %dx = pointwise f32[i0: 192, i1: 20480] fixed { %x[i0, i1] * %total[i0, 0] }
      %dw = reduce.sum f32[i0: 20480 | r0: 192] fixed { %x[r0, i0] }
    }""")
    machine = replace(
        with_numbers(GPU_LIKE, sm_count=16, max_threads=1024, max_cluster_size=16), max_tile_elements=32768
    )
    kernel = plan_of(graph, machine, SchedulerOptions()).kernels[0]
    assert isinstance(kernel.schedule, TileRequest) and kernel.schedule.row_cluster == 5
    assert cluster_size(kernel.schedule) == 1 and "workspace" not in {e.access for e in kernel.parameters}
    alone = plan_of(graph, machine, SchedulerOptions(max_cluster_size=1))
    requests = [each.schedule for each in alone.kernels if isinstance(each.schedule, TileRequest)]
    assert requests and {each.row_cluster for each in requests} == {1}
