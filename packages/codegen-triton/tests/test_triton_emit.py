"""The text of kernels, the kernels that emission refuses, and the choice of tiles."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import triton_corpus
import triton_nested_reductions
import triton_reductions
from triton_cases import I0, I1, R0, kernel, scalar
from triton_scheduled import emitted, tiled

from litz_codegen_triton.emit.source.ops_table import Form
from litz_codegen_triton.tables.hopper import HOPPER
from litz_ir.dtypes import DType, bf16, f32, i8, i64
from litz_ir.errors import CodegenError
from litz_ir.loops import Axis, NamedCombiner, ScatterMode
from litz_ir.origin import Origin
from litz_ir.plan import Access, Accumulate, Kernel, KernelOrigin, ScratchArray, Store, TileRequest
from litz_ir.scalar import Expr, Indirect, cast, const, index, masked, op
from litz_ir.scalar.build import load
from litz_ir.symbols import Size, SymbolInfo, add, mul, symbol
from litz_ir.text import parse_kernel

CASES = {case.name: case for case in triton_corpus.cases()}


@pytest.mark.parametrize("name", CASES)
def test_text_is_python_and_the_same_every_time(name: str) -> None:
    first = emitted(CASES[name].kernel)
    compile(first.text, name, "exec")
    assert first == emitted(CASES[name].kernel)


def row_sum(rows: int, length: int, dtype: DType = f32) -> Kernel:
    x = load("x", (I0 * length + R0,), dtype)
    return kernel(
        "row_sum",
        [("x", dtype, "in"), ("o", dtype, "out")],
        [("i0", rows)],
        ([("r0", length)], [Accumulate((("s", dtype),), NamedCombiner("sum"), (x,))]),
        ((), [Store("o", I0, scalar("s", dtype))]),
    )


def copy(count: int, dtype: DType = f32) -> Kernel:
    store = Store("o", I0, load("x", (I0,), dtype))
    return kernel("copy", [("x", dtype, "in"), ("o", dtype, "out")], [("i0", count)], ((), [store]))


def test_origins_become_comments() -> None:
    origin = Origin("relu_1", "aten.relu.default", "", "model.py", 12, "x = x.relu()")
    text = emitted(copy(8), origins=[KernelOrigin("relu", origin)]).text
    assert "# relu: relu_1 (aten.relu.default) at model.py:12: x = x.relu()" in text


@pytest.mark.parametrize("name", ["x\nraise SystemExit(1)", "x\rraise SystemExit(1)", "x\0", "x\f", "\u2028"])
def test_names_of_the_user_stay_inside_a_comment(name: str) -> None:
    origins = [KernelOrigin(name, Origin("relu_1", name, "", name, 12, name)), KernelOrigin(name, Origin())]
    found, plain = emitted(copy(8), origins=origins).text, emitted(copy(8), origins=[]).text
    assert len(found.splitlines()) == len(plain.splitlines()) + 1
    compile(found, "kernel", "exec")


def test_a_kernel_is_called_like_a_function_of_python() -> None:
    for name in ("a b", "a-b", "x\nimport os", "../x", "tl"):
        with pytest.raises(CodegenError, match="cannot be called"):
            emitted(replace(copy(8), name=name))


def test_scratch_arrays_are_refused() -> None:
    with pytest.raises(CodegenError, match="has scratch arrays"):
        emitted(replace(copy(8), scratch=(ScratchArray("scratch", f32, 4),)))


@pytest.mark.parametrize(
    ("mode", "dtype", "form", "function"),
    [
        ("add", f32, "compiled", "tl.atomic_add("),
        ("max", i64, "compiled", "tl.atomic_max("),
        ("max", f32, "compiled", "litz_atomic_max_f32("),
        ("mul", f32, "compiled", "litz_atomic_mul_f32("),
        ("add", i8, "compiled", "litz_atomic_add_i8("),
        ("add", bf16, "compiled", "tl.atomic_add("),
        ("add", bf16, "interpreted", "litz_atomic_add_bf16("),
    ],
)
def test_updates_without_a_native_atomic_use_compare_and_swap(
    mode: ScatterMode, dtype: DType, form: Form, function: str
) -> None:
    store = Store("o", 0, load("x", (I0,), dtype), mode)
    wanted = kernel("atomic", [("x", dtype, "in"), ("o", dtype, "inout")], [("i0", 9)], ((), [store]))
    assert function in emitted(wanted, form=form).text


def test_an_undefined_scalar_is_refused() -> None:
    store = Store("o", I0, scalar("lost"))
    with pytest.raises(CodegenError, match="'lost'"):
        emitted(kernel("reads", [("o", f32, "out")], [("i0", 9)], ((), [store])))


@pytest.mark.parametrize("blocks", [(("i0", 3),), (("nowhere", 4),)])
def test_blocks_that_are_no_powers_of_two_or_of_no_axis_are_refused(
    blocks: tuple[tuple[str, int], ...],
) -> None:
    with pytest.raises(CodegenError, match="power of two"):
        emitted(replace(copy(8), schedule=TileRequest(blocks=blocks)))


def test_indices_have_64_bits_only_where_they_must() -> None:
    assert "int64" not in emitted(copy(2**31 - 8192)).text
    assert "int64" in emitted(copy(2**31)).text
    open_end = replace(copy(8), outer=(Axis("i0", symbol("s0")),), symbols=(SymbolInfo("s0", low=0),))
    assert "int64" in emitted(open_end).text
    bounded = replace(open_end, symbols=(SymbolInfo("s0", low=0, high=1 << 20),))
    assert "int64" not in emitted(bounded).text


def test_masks_are_left_out_where_tiles_fit() -> None:
    assert "mask" not in emitted(copy(1 << 20)).text
    assert "mask" in emitted(copy((1 << 20) + 1)).text


def test_rows_stay_in_registers_while_they_fit() -> None:
    assert "for " not in emitted(row_sum(4096, HOPPER.loops.persistent_row)).text
    assert "for " in emitted(row_sum(4096, HOPPER.loops.persistent_row + 1)).text


def test_independent_loops_follow_one_another() -> None:
    def of(source: str) -> Store:
        return Store(f"{source}o", I0, op("exp", load(source, (I0,), f32)))

    names = [("x", "in"), ("y", "in"), ("xo", "out"), ("yo", "out")]
    parameters = [(name, f32, access) for name, access in names]
    text = emitted(kernel("pair", parameters, [("i0", 4096)], ((), [of("x"), of("y")]))).text
    assert text.index("tl.store(xo_ptr") < text.index("tl.load(y_ptr")
    one = emitted(kernel("one", parameters, [("i0", 4096)], ((), [of("x"), replace(of("x"), buffer="yo")])))
    assert one.text.count("tl.load(") == 1


def test_a_value_that_several_phases_need_is_read_once() -> None:
    assert emitted(CASES["softmax"].kernel).text.count("tl.load") == 1
    assert emitted(CASES["softmax_loop"].kernel).text.count("tl.load") == 3


def channels(points: int) -> Kernel:
    """Return ``sqrt(v) / x`` over channels of ``points`` elements, with one ``v`` per channel."""
    flat = I0 * points + I1
    quotient = op("div", op("sqrt", load("v", (I0,), f32)), load("x", (flat,), f32))
    return kernel(
        "channels",
        [("x", f32, "in"), ("v", f32, "in"), ("o", f32, "out")],
        [("i0", 8192), ("i1", points)],
        ((), [Store("o", flat, quotient)]),
    )


def test_an_index_that_is_constant_over_a_tile_is_a_scalar() -> None:
    text = emitted(channels(4096)).text
    assert tiled(channels(4096)).outer[0].block == 1024
    assert "i0 = tl.program_id(0) // 4\n" in text and "v_ptr + i0)" in text
    assert "i0 = xindex // 4095\n" in emitted(channels(4095)).text


def test_loads_precede_functions_that_may_branch() -> None:
    text = emitted(channels(4096)).text
    assert text.index("tl.load(v_ptr") < text.index("tl.load(x_ptr") < text.index("tl.sqrt_rn")


def test_independent_loops_do_not_prefetch() -> None:
    def of(source: str) -> Store:
        return Store(
            f"{source}o", I0, op("div", op("sqrt", load(f"{source}v", (I0,), f32)), load(source, (I0,), f32))
        )

    parameters: list[tuple[str, DType, Access]] = [
        (name, f32, "out" if name.endswith("o") else "in") for name in ("x", "xv", "xo", "y", "yv", "yo")
    ]
    text = emitted(kernel("pair", parameters, [("i0", 4096)], ((), [of("x"), of("y")]))).text
    assert text.index("tl.sqrt_rn") < text.index("tl.load(x_ptr")


def test_loads_that_exceed_the_registers_are_not_prefetched() -> None:
    names = [f"x{k}" for k in range(40)]
    total = op("sqrt", load("x0", (I0,), f32))
    for name in names[1:]:
        total = op("add", total, load(name, (I0,), f32))
    parameters: list[tuple[str, DType, Access]] = [*((name, f32, "in") for name in names), ("o", f32, "out")]
    text = emitted(kernel("many", parameters, [("i0", 1 << 24)], ((), [Store("o", I0, total)]))).text
    assert text.index("tl.sqrt_rn") < text.index("tl.load(x1_ptr")


def test_index_checks_are_asserts() -> None:
    assert emitted(CASES["gather"].kernel).asserts
    assert not emitted(CASES["gather_clamped"].kernel).asserts
    at = Indirect(load("n", (I0,), i64), 9, False, "assumed")
    store = Store("o", I0, load("x", (at,), f32))
    trusted = kernel(
        "trusted", [("x", f32, "in"), ("n", i64, "in"), ("o", f32, "out")], [("i0", 4)], ((), [store])
    )
    text = emitted(trusted).text
    assert "assert" not in text and "minimum" not in text


def test_tiles_follow_the_shape() -> None:
    few = tiled(copy(1000))
    assert few.grid_size == -(-1000 // few.outer[0].block)
    many = tiled(copy(1 << 24))
    assert many.outer[0].block >= 1024
    rows = tiled(row_sum(1 << 16, 1024))
    (inner, _) = rows.inner
    assert inner is not None and inner.persistent and inner.block == 1024
    long_rows = tiled(row_sum(64, 1 << 20))
    assert long_rows.outer[0].block == 1 and long_rows.warps >= 8


def test_columns_are_loaded_in_contiguous_tiles() -> None:
    x = load("x", (R0 * 4096 + I0,), f32)
    columns = kernel(
        "columns",
        [("x", f32, "in"), ("o", f32, "out")],
        [("i0", 4096)],
        ([("r0", 8192)], [Accumulate((("s", f32),), NamedCombiner("sum"), (x,))]),
        ((), [Store("o", I0, scalar("s"))]),
    )
    assert tiled(columns).outer[0].block >= 8


def statistics(cluster: int, dtype: DType = f32, rows: Size = R0) -> Kernel:
    """Return the sums and maxima of columns, and their elements less the sum, with clusters of ``cluster`` CTAs."""
    x = load("x", (add(mul(rows, 4096), I0),), dtype)
    axis, centred = [("r0", 8192)], op("sub", x, scalar("s", dtype))
    found = kernel(
        "statistics",
        [
            ("x", dtype, "in"),
            ("n", i64, "in"),
            ("o", dtype, "out"),
            ("m", dtype, "out"),
            ("scratch", i64, "workspace"),
        ],
        [("i0", 4096)],
        (
            axis,
            [
                Accumulate((("s", dtype),), NamedCombiner("sum"), (x,)),
                Accumulate((("t", dtype),), NamedCombiner("max"), (x,)),
            ],
        ),
        (axis, [Store("o", R0 * 4096 + I0, centred)]),
        ((), [Store("m", I0, scalar("t", dtype))]),
    )
    parameters = found.parameters if cluster > 1 else found.parameters[:-1]
    return replace(found, parameters=parameters, schedule=replace(found.schedule, cluster=cluster))


def test_accumulation_of_columns_in_a_cluster_is_pipelined() -> None:
    chosen = statistics(4)
    assert tiled(chosen).stages == 4
    text = emitted(chosen).text
    assert text.count("in tl.range(first, end, RBLOCK, num_stages=4)") == 1, (
        "a loop that stores is not pipelined"
    )
    assert text.count("in range(first, end, RBLOCK)") == 1
    asked = replace(chosen, schedule=TileRequest(blocks=(("i0", 32), ("r0", 64)), cluster=4))
    assert tiled(asked).stages == 4
    assert tiled(replace(asked, schedule=replace(asked.schedule, stages=1))).stages == 1


def test_gathered_and_unclustered_columns_are_not_pipelined() -> None:
    gathered = Indirect(load("n", (R0,), i64), 8192, False, "clamped")
    for other in (statistics(1), statistics(4, rows=gathered)):
        assert tiled(other).stages == 1
        assert "tl.range" not in emitted(other).text


def test_a_transpose_gets_a_square_tile() -> None:
    store = Store("o", I0 * 512 + I1, op("neg", load("x", (I1 * 512 + I0,), f32)))
    chosen = tiled(
        kernel("t", [("x", f32, "in"), ("o", f32, "out")], [("i0", 512), ("i1", 512)], ((), [store]))
    )
    assert [dim.block for dim in chosen.outer] == [32, 32]


def test_writing_kernels_imports_neither_triton_nor_torch() -> None:
    program = (
        "import sys, litz_codegen_triton.emit.kernel; print(sorted({'torch', 'triton'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("points", [512, 1 << 15], ids=["tile", "loop"])
def test_loads_of_an_overwritten_buffer_are_complete_before_the_store(points: int) -> None:
    """A thread loads eight elements of `x` for the bf16 store and stores four f32 elements, which may be others."""
    at = add(mul(I0, points), R0)
    narrow = Store("a", at, cast(op("exp", load("x", (at,), f32)), bf16))
    parameters: list[tuple[str, DType, Access]] = [("x", f32, "inout"), ("a", bf16, "out")]

    def order(value: Expr) -> list[str]:
        made = kernel("k", parameters, [("i0", 64)], ([("r0", points)], [narrow, Store("x", at, value)]))
        lines = map(str.strip, emitted(made).text.splitlines())
        kinds = ("tl.store(x", "tl.store(a", "tl.debug_barrier", "tl.load(x")
        return [kind for line in lines for kind in kinds if kind in line]

    stores = ["tl.store(a", "tl.store(x"]
    assert order(const(0.0, f32)) == ["tl.load(x", "tl.debug_barrier", *stores], (
        "the store does not depend on the load"
    )
    assert order(op("neg", load("x", (at,), f32))) == ["tl.load(x", *stores], (
        "the stored value depends on the load"
    )
    both = masked(op("lt", index(R0), const(7, i64)), load("x", (at,), f32), const(0.0, f32))
    assert order(both) == ["tl.load(x", *stores], "a loaded value is not loaded again"


@pytest.mark.parametrize(
    ("maximum", "result", "flushed"),
    [
        ("max { %x[i0*256 + r0] }", "%x[i0*256 + r0] - $m - log($s)", True),
        ("max { %x[i0*256 + r0] }", "exp(%x[i0*256 + r0] - $m) / $s", False),
        ("max { %x[i0*256 + r0] * 2.0 }", "%x[i0*256 + r0] - $m - log($s)", False),
        ("min { %x[i0*256 + r0] }", "%x[i0*256 + r0] - $m - log($s)", False),
    ],
    ids=["relative", "stored", "another maximum", "minimum"],
)
def test_exponentials_that_only_a_sum_of_one_or_more_reads_are_flushed(
    maximum: str, result: str, flushed: bool
) -> None:
    found = parse_kernel(f"""
kernel rows(in %x: f32, out %o: f32) {{
  schedule tile_request
  outer [i0: 4096]
  phase [r0: 256] {{
    $m: f32 = reduce.{maximum};
  }}
  phase [r0: 256] {{
    $s: f32 = reduce.sum {{ exp(%x[i0*256 + r0] - $m) }};
  }}
  phase [r0: 256] {{
    %o[i0*256 + r0] = {result};
  }}
}}""")
    assert ("litz_exp_flushed(" in emitted(found).text) == flushed


def test_an_index_for_each_row_does_not_narrow_the_loads_of_its_elements() -> None:
    """The 8 bytes of a row's index are one element for all of a thread."""
    at = add(mul(I0, 4096), I1)
    body = op("add", load("x", (at,), bf16), cast(load("n", (I0,), i64), bf16))
    parameters: list[tuple[str, DType, Access]] = [("x", bf16, "in"), ("n", i64, "in"), ("o", bf16, "out")]
    found = kernel("m", parameters, [("i0", 4096), ("i1", 4096)], ((), [Store("o", at, body)]))
    tiles = tiled(found)
    assert tiles.outer[-1].block // (32 * tiles.warps) == 8


def test_a_class_and_its_score_are_loaded_before_the_row_is_reduced() -> None:
    text = emitted(triton_reductions.classes("classes").kernel).text
    assert text.index("tl.load(c_ptr") < text.index("+ index)") < text.index("tl.reduce(")
    loop = TileRequest(blocks=(("r0", 16),), warps=1)
    text = emitted(triton_reductions.classes("classes", loop).kernel).text
    assert text.index("tl.load(c_ptr") < text.index("for roffset") < text.index("tl.device_assert")


def test_a_loop_that_sums_rows_loads_the_next_tile_first() -> None:
    cases = {case.name: case.kernel for case in triton_nested_reductions.rows_and_columns()}
    text = emitted(cases["rows_and_columns_bf16_2"]).text
    before, loop = text.split("for roffset")
    assert before.count("tl.load(x_ptr") == loop.count("tl.load(x_ptr") == 1
    assert loop.index("tl.load(x_ptr") < loop.index("tl.sum(")
    assert "for roffset" not in emitted(cases["rows_and_columns_f32_8"]).text, "one tile has all rows"
