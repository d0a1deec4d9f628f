"""Schedules of kernels and plans for a chip."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce

import pytest
import triton_attention_scores
import triton_cases
import triton_corpus
import triton_fused_attention
import triton_horizontal_fusion
import triton_matmuls
from triton_cases import I0, I1, R0, kernel
from triton_graphs import graphs, plan_of
from triton_scheduled import MACHINE, emitted, scheduled

from litz_codegen_triton.capabilities import chip_model
from litz_codegen_triton.emit.indexing.grid import grid_size
from litz_codegen_triton.emit.kernel import emit_kernel
from litz_codegen_triton.emit.loops.dot_kernels import scheduled_roles
from litz_codegen_triton.schedule.kernel import schedule_kernel
from litz_codegen_triton.schedule.plan import schedule_plan
from litz_ir.dtypes import DType, bf16, f32, i32, i64
from litz_ir.errors import CodegenError
from litz_ir.loops import NamedCombiner
from litz_ir.plan import (
    Access,
    Accumulate,
    Attention,
    CpuLoops,
    Foreach,
    Kernel,
    LookbackScan,
    Matmul,
    Store,
    TileLoops,
    TileRequest,
    kernels_in,
    schedules_of,
)
from litz_ir.plan.verify.kernel import verify_kernel
from litz_ir.scalar import Scalar, op
from litz_ir.scalar.build import cast, load
from litz_ir.symbols import Size, SymbolInfo, add, free_symbols, mul, symbol
from litz_ir.text import from_text, parse_kernel, print_schedule, to_text
from litz_ir.verifier import verify

MODULES = (
    triton_corpus,
    triton_matmuls,
    triton_fused_attention,
    triton_attention_scores,
    triton_horizontal_fusion,
)
KERNELS = {case.name: case.kernel for module in MODULES for case in module.cases()}


def text_of(made: Kernel) -> str:
    """Return the name of a kernel and its schedules, one a line."""
    return "\n  ".join([made.name, *map(print_schedule, schedules_of(made))])


def test_schedules_of_the_corpus(golden: Callable[[str, str], None]) -> None:
    made = [scheduled(each) for name, each in KERNELS.items() if not name.startswith("operations")]
    golden("schedules_sm_90.txt", "\n".join(map(text_of, made)) + "\n")


@pytest.mark.parametrize("name", KERNELS)
def test_a_schedule_is_complete_and_verifies(name: str) -> None:
    made = scheduled(KERNELS[name])
    assert not any(isinstance(each, CpuLoops | TileRequest) for each in schedules_of(made))
    assert scheduled(made) == made
    verify_kernel(made)


@pytest.mark.parametrize("name", KERNELS)
def test_roles_have_the_axes_of_the_schedule(name: str) -> None:
    made = scheduled(KERNELS[name])
    found, schedule = scheduled_roles(made), made.schedule
    if not isinstance(schedule, Matmul | Attention):
        assert found is None
        return
    assert found is not None
    axes = [tuple(axis.name for axis in each) for each in (found.batch, found.rows, found.columns)]
    assert axes == [schedule.batch, schedule.rows.axes, schedule.columns.axes]


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("softmax", TileLoops),
        ("softmax_in_cluster_of_2", TileLoops),
        ("lookback_argmax", LookbackScan),
        ("matmul_symbolic", Matmul),
        ("attention_listed_odd", Attention),
        ("scores_points_0", Attention),
        ("steps_f32", Foreach),
    ],
)
def test_the_form_of_a_kernel(name: str, form: type) -> None:
    assert isinstance(scheduled(KERNELS[name]).schedule, form)


def test_a_scheduled_plan_round_trips_through_text() -> None:
    for graph in graphs():
        plan = plan_of(graph)
        verify(plan)
        assert from_text(to_text(plan)) == plan
        assert all(not isinstance(each.schedule, TileRequest) for each in kernels_in(plan))
        assert schedule_plan(plan, MACHINE) == plan


def test_tiles_depend_on_the_number_of_sms() -> None:
    large = triton_matmuls.matmul("large", 1024, 1024, 1024).kernel
    few = replace(MACHINE, model=replace(MACHINE.model, sm_count=16))
    rows = {
        machine.model.sm_count: print_schedule(schedule_kernel(large, machine).schedule)
        for machine in (few, MACHINE)
    }
    assert rows[16].startswith("matmul rows(i0: 128) columns(i1: 128)")
    assert rows[MACHINE.model.sm_count] != rows[16]
    assert chip_model("sm_80").sm_count != MACHINE.model.sm_count


def test_a_kernel_without_a_schedule_is_refused() -> None:
    for name in ("softmax", "steps_f32"):
        with pytest.raises(CodegenError, match="is not scheduled for a GPU"):
            emit_kernel(KERNELS[name])
        with pytest.raises(CodegenError, match="is not scheduled for a GPU"):
            grid_size(KERNELS[name])


def test_a_schedule_of_another_form_is_refused() -> None:
    matmul = scheduled(KERNELS["matmul_symbolic"]).schedule
    attention = scheduled(KERNELS["attention_listed_odd"]).schedule
    for schedule, what in ((matmul, "a matmul"), (attention, "attention")):
        with pytest.raises(CodegenError, match=f"scheduled as {what}, which it is not"):
            emit_kernel(replace(KERNELS["softmax"], schedule=schedule))


def test_emission_follows_the_schedule() -> None:
    made = scheduled(KERNELS["softmax"])
    assert isinstance(made.schedule, TileLoops)
    other = replace(made, schedule=replace(made.schedule, warps=2 * made.schedule.warps))
    assert emitted(other).warps == 2 * emitted(made).warps


def test_loads_of_a_map_are_prefetched_while_they_fit_registers() -> None:
    def of(count: int) -> Kernel:
        total = op("sqrt", load("x0", (I0,), f32))
        for k in range(1, count):
            total = op("add", total, load(f"x{k}", (I0,), f32))
        inputs: list[tuple[str, DType, Access]] = [(f"x{k}", f32, "in") for k in range(count)]
        parameters = [*inputs, ("o", f32, "out")]
        return scheduled(kernel("k", parameters, [("i0", 1 << 24)], ((), [Store("o", I0, total)])))

    few, many = (of(count).schedule for count in (2, 40))
    assert isinstance(few, TileLoops) and few.prefetch == (0,)
    assert isinstance(many, TileLoops) and many.prefetch == ()
    late = replace(of(2), schedule=replace(few, prefetch=()))
    texts = [emit_kernel(each).text for each in (of(2), late)]
    assert [text.index("tl.load(x1_ptr") < text.index("tl.sqrt_rn") for text in texts] == [True, False]


@pytest.mark.parametrize(
    ("columns", "rows_read", "blocks"),
    [
        (50257, 3, [1, 1024]),
        (50257, 1, [1024]),
        (50256, 3, [1024]),
        (999, 3, [1024]),
        (symbol("s"), 1, [1, 1024]),
        (symbol("s"), 0, [1024]),
        (symbol("short"), 1, [1024]),
    ],
)
def test_a_map_that_loads_much_for_each_odd_row_has_tiles_of_one_row(
    columns: Size, rows_read: int, blocks: list[int]
) -> None:
    symbols = [SymbolInfo(name, "int", 2, None, 1, hint, "") for name, hint in (("s", 50257), ("short", 99))]
    flat, dtypes = I0 * columns + I1, (f32, i64, i32)[:rows_read]
    value = load("x", (flat,), f32)
    for k, dtype in enumerate(dtypes):
        value = op("add", value, cast(load(f"v{k}", (I0,), dtype), f32))
    parameters: list[tuple[str, DType, Access]] = [("x", f32, "in"), ("o", f32, "out")]
    parameters += [(f"v{k}", dtype, "in") for k, dtype in enumerate(dtypes)]
    axes: list[tuple[str, Size]] = [("i0", 4096), ("i1", columns)]
    own = [each for each in symbols if each.name in free_symbols(columns)]
    body = kernel("k", parameters, axes, ((), [Store("o", flat, value)]), symbols=own)
    schedule = scheduled(body).schedule
    assert isinstance(schedule, TileLoops)
    assert [tile.block for tile in schedule.outer] == blocks


@pytest.mark.parametrize(
    ("columns", "dtype", "rows_read", "blocks"),
    [
        (256, bf16, 1, [8, 256]),
        (1024, bf16, 3, [2, 1024]),
        (128, bf16, 1, [2048]),
        (128, f32, 2, [8, 128]),
        (512, f32, 1, [2, 512]),
        (256, f32, 0, [1024]),
        (1024, f32, 1, [1024]),
        (768, f32, 1, [1024]),
        (1, f32, 1, [1024]),
    ],
)
def test_a_costly_map_of_short_rows_with_values_of_their_own_has_tiles_of_whole_rows(
    columns: int, dtype: DType, rows_read: int, blocks: list[int]
) -> None:
    def blocks_of(name: str, rows: int = 1 << 16) -> list[int]:
        flat = I0 * columns + I1
        value = cast(load("x", (flat,), dtype), f32)
        for k in range(rows_read):
            value = op("add", value, load(f"v{k}", (I0,), f32))
        parameters: list[tuple[str, DType, Access]] = [("x", dtype, "in"), ("o", dtype, "out")]
        parameters += [(f"v{k}", f32, "in") for k in range(rows_read)]
        axes: list[tuple[str, Size]] = [("i0", rows << 6 if columns == 1 else rows), ("i1", columns)]
        stored = Store("o", flat, cast(op(name, op(name, value)), dtype))
        schedule = scheduled(kernel("k", parameters, axes, ((), [stored]))).schedule
        assert isinstance(schedule, TileLoops)
        return [tile.block for tile in schedule.outer]

    assert blocks_of("tanh") == blocks
    assert min(*blocks_of("tanh", 0), *blocks_of("tanh", 3)) >= 1
    assert len(blocks_of("neg")) == 1


def test_tiles_of_whole_rows_get_more_rows_with_the_warps_of_a_foreach_kernel() -> None:
    flat = I0 * 256 + I1
    value = op("tanh", op("tanh", op("add", load("x", (flat,), f32), load("v", (I0,), f32))))
    parameters: list[tuple[str, DType, Access]] = [("x", f32, "in"), ("v", f32, "in"), ("o", f32, "out")]
    short = kernel("s", parameters, [("i0", 1 << 16), ("i1", 256)], ((), [Store("o", flat, value)]))
    plain = kernel("c", parameters, [("i0", 1 << 24)], ((), [Store("o", I0, load("x", (I0,), f32))]))
    pair = [triton_cases.Case(each, {}) for each in (short, plain)]
    rows, _ = scheduled(triton_horizontal_fusion.foreach("pair", pair).kernel).subkernels
    assert isinstance(rows.kernel.schedule, TileLoops)
    assert [tile.block for tile in rows.kernel.schedule.outer] == [8, 256]
    assert rows.kernel.schedule.warps == 8


def test_operands_have_descriptors_where_their_memory_allows_it() -> None:
    request = TileRequest(blocks=(("i0", 64), ("i1", 64), ("r0", 32)), grid=132, descriptors=True)
    found = {}
    for columns in (64, 60, 61):
        made = scheduled(triton_matmuls.matmul("p", 64, columns, 64, schedule=request).kernel)
        assert isinstance(made.schedule, Matmul)
        found[columns] = made.schedule.descriptors
    assert found == {64: ("left", "right"), 60: ("left",), 61: ("left",)}


@pytest.mark.parametrize("columns", [500, 768, 1000, 4096, 6144, 16384])
@pytest.mark.parametrize("dtypes", [(f32, f32, bf16), (bf16, f32), (f32, f32, f32), (bf16, bf16, bf16)])
def test_rows_of_several_dtypes_have_a_power_of_two_of_warps(dtypes: tuple[DType, ...], columns: int) -> None:
    at = add(mul(I0, columns), R0)
    total = reduce(
        partial(op, "add"), [cast(load(f"x{k}", (at,), each), f32) for k, each in enumerate(dtypes)]
    )
    made = kernel(
        "rows",
        [*((f"x{k}", each, "in") for k, each in enumerate(dtypes)), ("o", f32, "out")],
        [("i0", 8192)],
        ([("r0", columns)], [Accumulate((("s", f32),), NamedCombiner("sum"), (total,))]),
        ((), [Store("o", I0, Scalar("s", f32))]),
    )
    schedule = schedule_kernel(made, MACHINE).schedule
    assert isinstance(schedule, TileLoops) and schedule.warps.bit_count() == 1


POOLING = """
kernel pooling(in %x: {dtype}, out %o: {dtype}) {{
  schedule tile_request
  outer [i0: 64, i1: 56, i2: 56, i3: 64]
  phase [r0: 2, r1: {width}] {{
    $v: {dtype} = reduce.{kind} {{ %x[i0*802816 + i1*14336 + i2*128 + i3 + r0*7168 + r1*64] }};
  }}
  phase [] {{
    %o[i0*200704 + i1*3584 + i2*64 + i3] = $v;
  }}
}}
"""


@pytest.mark.parametrize(("dtype", "points"), [("f32", 4), ("bf16", 8), ("i64", 4)])
def test_each_thread_reduces_windows_of_16_bytes(dtype: str, points: int) -> None:
    schedule = scheduled(parse_kernel(POOLING.format(dtype=dtype, width=2, kind="max"))).schedule
    assert isinstance(schedule, TileLoops) and schedule.warps == 4
    assert [tile.block for tile in schedule.outer] == [128 * points]
    assert [inner and (inner.block, inner.persistent) for inner in schedule.inner] == [(1, False), None]


@pytest.mark.parametrize(("width", "kind"), [(17, "max"), (2, "online_softmax")])
def test_large_windows_and_relative_sums_are_reduced_by_tiles(width: int, kind: str) -> None:
    text = POOLING.format(dtype="f32", width=width, kind=kind)
    if kind != "max":
        text = text.replace("$v: f32 =", "$v: f32, $s: f32 =")
    schedule = scheduled(parse_kernel(text)).schedule
    assert isinstance(schedule, TileLoops)
    assert schedule.inner[0] is not None and schedule.inner[0].block > 1


SHORT = """
kernel short(in %x: f32, out %o: f32) {{
  schedule tile_request
  outer [i0: 1048576]
  phase [r0: 4] {{
    $s: f32 = reduce.sum {{ %x[i0*{step} + r0] }};
  }}
  phase [] {{
    %o[i0] = $s;
  }}
}}
"""


@pytest.mark.parametrize(("step", "block"), [(2, 1), (4, 4)])
def test_overlapping_windows_are_reduced_by_threads_and_short_rows_by_tiles(step: int, block: int) -> None:
    schedule = scheduled(parse_kernel(SHORT.format(step=step))).schedule
    assert isinstance(schedule, TileLoops)
    assert schedule.inner[0] is not None and schedule.inner[0].block == block


TRANSPOSED = """
kernel transposed(in %x: {dtype}, in %y: f32, in %z: f32, out %o: f32) {{
  schedule tile_request
  outer [i0: 8, i1: 1500]
  phase [r0: 512] {{
    let t0 = %y[i0*768000 + i1*512 + r0] * %z[i0*768000 + i1*512 + r0 + 512];
    $s: f32 = reduce.sum {{ f32(%x[i0*768000 + i1{row} + r0{column}]) + t0 }};
  }}
  phase [] {{
    %o[i0*1500 + i1] = $s;
  }}
}}
"""


@pytest.mark.parametrize(
    ("dtype", "row", "column", "rows"),
    [("f32", "*512", "", 2), ("f32", "", "*1500", 8), ("bf16", "", "*1500", 16)],
)
def test_rows_of_a_transposed_operand_fill_sectors(dtype: str, row: str, column: str, rows: int) -> None:
    schedule = scheduled(parse_kernel(TRANSPOSED.format(dtype=dtype, row=row, column=column))).schedule
    assert isinstance(schedule, TileLoops)
    assert [tile.block for tile in schedule.outer] == [rows]


@pytest.mark.parametrize(("sums", "warps"), [(4, 4), (16, 4), (25, 8), (40, 16)])
def test_loops_down_columns_leave_registers_for_their_accumulators(sums: int, warps: int) -> None:
    lines = [
        f"    $s{k}: f32 = reduce.sum {{ %x[i0 + r0*512] * %y[i0 + r0*512 + {k}] }};" for k in range(sums)
    ]
    stores = [f"    %o[i0*{sums} + {k}] = $s{k};" for k in range(sums)]
    text = (
        "kernel columns(in %x: f32, in %y: f32, out %o: f32) {\n  schedule tile_request\n  outer [i0: 512]\n"
    )
    text += (
        "  phase [r0: 4096] {\n"
        + "\n".join(lines)
        + "\n  }\n  phase [] {\n"
        + "\n".join(stores)
        + "\n  }\n}\n"
    )
    schedule = scheduled(parse_kernel(text)).schedule
    assert isinstance(schedule, TileLoops)
    assert schedule.warps == warps


COLUMNS = """
kernel columns(in %x: {dtype}, out %o: f32, workspace %w: i64) {{
  schedule tile_request cluster {cluster}
  outer [i0: {columns}]
  phase [r0: 12608] {{
    $s: f32 = reduce.sum {{ f32(%x[i0 + r0*{columns}]) }};
  }}
  phase [] {{
    %o[i0] = $s;
  }}
}}
"""


@pytest.mark.parametrize(
    ("dtype", "columns", "cluster", "x", "rows"),
    [("bf16", 3072, 8, 64, 32), ("bf16", 768, 8, 16, 128), ("f32", 4096, 4, 32, 32), ("f32", 256, 8, 8, 128)],
)
def test_staged_tiles_of_columns_have_4_kilobytes(
    dtype: str, columns: int, cluster: int, x: int, rows: int
) -> None:
    text = COLUMNS.format(dtype=dtype, columns=columns, cluster=cluster)
    schedule = scheduled(parse_kernel(text)).schedule
    assert isinstance(schedule, TileLoops) and schedule.inner[0] is not None
    assert (schedule.outer[0].block, schedule.inner[0].block) == (x, rows)
    assert (schedule.stages, schedule.warps) == (4, 4)


STORED = """
kernel stored(in %x: {dtype}, out %y: bf16, out %o: f32) {{
  schedule tile_request
  outer [i0: 33, i1: {columns}]
  phase [r0: 64] {{
    let t0 = bf16(f32(%x[i0*{chunk} + i1 + r0*{columns}]));
    %y[i0*{chunk} + i1 + r0*{columns}] = t0;
    $s: f32 = reduce.sum {{ f32(t0) }};
  }}
  phase [] {{
    %o[i0*{columns} + i1] = $s;
  }}
}}
"""


@pytest.mark.parametrize(("columns", "x"), [(3072, 64), (192, 64), (1000, 64), (80, 32)])
@pytest.mark.parametrize(("dtype", "warps", "stages"), [("bf16", 2, 2), ("f32", 4, 1)])
def test_tiles_of_columns_that_are_stored_and_summed_leave_few_idle(
    dtype: str, warps: int, stages: int, columns: int, x: int
) -> None:
    made = scheduled(parse_kernel(STORED.format(dtype=dtype, columns=columns, chunk=64 * columns)))
    assert isinstance(made.schedule, TileLoops) and made.schedule.inner[0] is not None
    assert [(tile.axes, tile.block) for tile in made.schedule.outer] == [(("i0",), 1), (("i1",), x)]
    assert made.schedule.inner[0].block == 1024 // x
    assert (made.schedule.warps, made.schedule.stages) == (warps, stages)
    assert grid_size(made) == 33 * -(-columns // x)
