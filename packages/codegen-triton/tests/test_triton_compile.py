"""Compilation of the corpus to cubins for sm_90, which needs no GPU."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import triton_assembly
import triton_cases
import triton_corpus
from triton_scheduled import choices, emitted, tiled

from litz_codegen_triton.capabilities import SORTED_ROW
from litz_codegen_triton.emit.kernel_source import KernelSource
from litz_codegen_triton.runtime.compile import compile_source
from litz_codegen_triton.runtime.compiled_kernel import CompiledKernel
from litz_ir.dtypes import DType, bf16, f32, f64, i64
from litz_ir.errors import CodegenError, CompileFailed, TargetError, ToolchainError
from litz_ir.loops import SORT, NamedCombiner
from litz_ir.plan import Access, Accumulate, Kernel, ScanStore, Store, TileRequest
from litz_ir.scalar import op
from litz_ir.scalar.build import const, load, where
from litz_ir.text import parse_kernel

CASES = {case.name: case for case in triton_corpus.cases()}
# The others compile to much the same code; they differ in Triton's interpreter.
COMPILED = [
    name
    for name in CASES
    if not re.search(
        r"_loop_x$|operations_(f16|i32|i8|u32)|casts_from_(i16|i8|u64|u32|u16|f8e5m2)|gelu_[17]$", name
    )
]
ELF = b"\x7fELF"


@pytest.mark.sampled
@pytest.mark.parametrize("name", COMPILED)
def test_kernel_compiles_to_a_cubin(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    found = compile_source(emitted(case.kernel), "sm_90", tmp_path)
    assert found.cubin.startswith(ELF)
    assert found.parameters >= len(case.kernel.parameters) + len(case.kernel.symbols)
    assert ".target sm_90" in found.ptx


@pytest.mark.parametrize("chip", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("dtype", [f32, bf16], ids=str)
def test_accesses_are_vectorised_where_alignment_allows(dtype: DType, chip: str, tmp_path: Path) -> None:
    source = emitted(negation(1 << 20, dtype))
    ptx = compile_source(source, chip, tmp_path).ptx
    assert "ld.global.v4.b32" in ptx and "st.global.v4.b32" in ptx
    assert not re.search(r"(ld|st)\.global\.(b16|b32|v2)", ptx), "all accesses are of 16 bytes"
    unaligned = compile_source(replace(source, divisible=()), chip, tmp_path, aligned=False).ptx
    assert "global.v4.b32" not in unaligned


def negation(count: int, dtype: DType) -> Kernel:
    kernel = triton_cases.kernel
    body = op("neg", load("x", (triton_cases.I0,), dtype))
    store = Store("o", triton_cases.I0, body)
    return kernel("negation", [("x", dtype, "in"), ("o", dtype, "out")], [("i0", count)], ((), [store]))


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_a_negative_zero_keeps_its_sign(dtype: DType, tmp_path: Path) -> None:
    """Triton makes +0.0 of a literal that compares equal to zero."""
    at = (triton_cases.I0,)
    x = load("x", at, dtype)
    store = Store("o", triton_cases.I0, where(op("isnan", x), const(-0.0, dtype), x))
    kernel = triton_cases.kernel(
        "cleared", [("x", dtype, "in"), ("o", dtype, "out")], [("i0", 300)], ((), [store])
    )
    ptx = compile_source(emitted(kernel), "sm_90", tmp_path).ptx
    sign = 1 << (dtype.bits - 1)
    assert str(-sign) in ptx or f"{sign:X}" in ptx


def test_multiplication_and_addition_are_rounded_each_where_no_float_is_summed(tmp_path: Path) -> None:
    at = (triton_cases.I0,)
    multiplied = op("mul", load("x", at, f32), load("y", at, f32))
    store = Store("o", triton_cases.I0, op("add", multiplied, load("x", at, f32)))
    buffers = [("x", f32, "in"), ("y", f32, "in"), ("o", f32, "out")]
    pointwise = triton_cases.kernel("multiply_add", buffers, [("i0", 4096)], ((), [store]))
    ptx = compile_source(emitted(pointwise), "sm_90", tmp_path).ptx
    assert ("fma.rn.f32" not in ptx and "mul.rn.f32" in ptx) or "mul.f32" in ptx
    contracted = compile_source(replace(emitted(pointwise), contract=True), "sm_90", tmp_path).ptx
    assert "fma.rn" in contracted
    assert emitted(CASES["softmax"].kernel).contract, (
        "sums of floats differ from eager's in the last place anyway"
    )


@pytest.mark.parametrize("name", ["exp", "exp2"])
def test_a_multiplication_is_rounded_before_its_largest_value_is_subtracted(name: str) -> None:
    element = op("mul", load("x", (triton_cases.row_element(),), f32), const(1e14, f32))
    largest = Accumulate((("top", f32),), NamedCombiner("max"), (element,))
    difference = op(name, op("sub", element, triton_cases.scalar("top")))
    total = Accumulate((("total", f32),), NamedCombiner("sum"), (difference,))
    row = [("r0", 70)]
    store = Store("o", triton_cases.row_element(), op("div", difference, triton_cases.scalar("total")))
    phases = [(row, [largest]), (row, [total]), (row, [store])]
    buffers: list[tuple[str, DType, Access]] = [("x", f32, "in"), ("o", f32, "out")]
    assert not emitted(triton_cases.kernel("softmax_of_multiples", buffers, [("i0", 9)], *phases)).contract


def test_what_is_computed_at_no_point_compiles(tmp_path: Path) -> None:
    at = (triton_cases.I0,)
    store = Store("o", triton_cases.I0, op("remainder", load("x", at, i64), const(0, i64)))
    kernel = triton_cases.kernel(
        "remainder_by_zero", [("x", i64, "in"), ("o", i64, "out")], [("i0", 0)], ((), [store])
    )
    assert compile_source(emitted(kernel), "sm_90", tmp_path).cubin.startswith(ELF)


def test_a_transpose_goes_through_shared_memory(tmp_path: Path) -> None:
    found = compile_source(emitted(CASES["transpose"].kernel), "sm_90", tmp_path)
    assert found.shared_bytes > 0


def test_columns_in_a_cluster_are_prefetched_in_vectors(tmp_path: Path) -> None:
    found = compile_source(emitted(CASES["tall_columns_in_cluster_of_4"].kernel), "sm_90", tmp_path)
    assert "cp.async.cg.shared.global" in found.ptx and found.shared_bytes > 0


@pytest.mark.parametrize(
    ("name", "rounds"),
    [
        ("online_softmax_in_cluster_of_2", 1),
        ("two_barriers_in_cluster_of_2", 2),
        ("kinds_f64_in_cluster_of_2", 1),
    ],
)
def test_rows_in_a_cluster_meet_in_shared_memory(name: str, rounds: int, tmp_path: Path) -> None:
    ptx = compile_source(emitted(CASES[name].kernel), "sm_90", tmp_path).ptx
    assert ptx.count("mbarrier.try_wait") == ptx.count("mbarrier.init") == rounds
    assert "st.async" in ptx and ptx.count("barrier.cluster.wait") == 1
    # a release would wait for all accesses of a thread to memory
    assert "barrier.cluster.arrive.release" not in ptx


def test_columns_in_a_cluster_meet_in_the_workspace(tmp_path: Path) -> None:
    ptx = compile_source(emitted(CASES["columns_in_cluster_of_4"].kernel), "sm_90", tmp_path).ptx
    assert "barrier.cluster.arrive.release" in ptx and "st.async" not in ptx


@pytest.mark.parametrize("name", ["argmin", "argmax"])
def test_the_index_of_an_extremum_takes_four_comparisons_of_values_a_point(name: str, tmp_path: Path) -> None:
    length, warps = 4096, 4
    row = f"""
kernel extremum(in %x: f32, out %o: i64) {{
  schedule tile_request
  outer [i0: 16384]
  phase [r0: {length}] {{
    $a: f32, $b: i64 = reduce.{name} {{ %x[i0*{length} + r0], index(r0) }};
  }}
  phase [] {{
    %o[i0] = $b;
  }}
}}
"""
    source = emitted(parse_kernel(row))
    assert source.warps == warps
    ptx = compile_source(source, "sm_90", tmp_path).ptx
    of_a_thread, of_a_warp, of_all = length // (32 * warps) - 1, 5, 2
    assert len(re.findall(r"\bsetp\.\w+\.(?:and\.)?f32", ptx)) == 4 * (of_a_thread + of_a_warp + of_all)


THIRDS = """import triton
import triton.language as tl


@triton.jit
def thirds(p0_ptr, p1_ptr):
    program = tl.program_id(0)
    if program < 12:
        index = program * 128 + tl.arange(0, 128)
        p0 = tl.load(p0_ptr + index) != 0
        first = (index + 1) % 3 == 0
        tl.store(p1_ptr + index, (p0 & first).to(tl.uint8))
"""


@pytest.mark.parametrize("chip", ["sm_90", "sm_100"])
def test_no_pair_of_16_bit_integers_is_added_at_once(chip: str, tmp_path: Path) -> None:
    source = KernelSource("thirds", THIRDS, ("*i8", "*i8"), (0, 1), warps=1, asserts=False, grid_size=12)
    found = compile_source(source, chip, tmp_path)
    assert "add.s16x2" not in found.ptx, "ptxas drops its constants"
    assert len(re.findall(r"add\.s16 %a\d, %a\d, %b\d;", found.ptx)) >= 2, "the kernel has 16-bit additions"
    assert found.cubin.startswith(ELF)


def test_compiled_kernels_round_trip_through_bytes(tmp_path: Path) -> None:
    found = compile_source(emitted(CASES["softmax"].kernel), "sm_90", tmp_path)
    assert CompiledKernel.from_bytes(found.to_bytes()) == replace(found, ptx="")
    for broken in (b"", b"{}", b"{}\n", found.to_bytes()[5:], b'{"format": "other"}\n'):
        with pytest.raises(ToolchainError, match="not a compiled kernel"):
            CompiledKernel.from_bytes(broken)


def test_errors_name_the_kernel_and_the_chip(tmp_path: Path) -> None:
    source = emitted(CASES["softmax"].kernel)
    with pytest.raises(TargetError, match="no chip"):
        compile_source(source, "gfx90a", tmp_path)
    broken = replace(source, text=source.text.replace("tl.sum", "tl.no_such_function"))
    with pytest.raises(CompileFailed, match="softmax") as caught:
        compile_source(broken, "sm_90", tmp_path)
    assert "no_such_function" in caught.value.output
    with pytest.raises(ToolchainError, match="cannot be imported"):
        compile_source(replace(source, text="def ("), "sm_90", tmp_path)


@pytest.mark.parametrize("chip", ["sm_80", "sm_90", "sm_100"])
def test_a_thread_of_a_lookback_scan_loads_one_word_of_each_half(chip: str, tmp_path: Path) -> None:
    ptx = compile_source(emitted(CASES["lookback_argmax"].kernel), chip, tmp_path).ptx
    # A value of 32 bits and an index of 64: loaded once before the loop that waits, and once in it.
    assert (
        len(re.findall(r"ld\.volatile\.global\.b64", ptx)) == len(re.findall(r"ld\.volatile", ptx)) == 2 * 3
    )
    # Stored in two branches: for a chunk that is the last of its window, and for any other.
    assert len(re.findall(r"atom\.global\.gpu\.relaxed\.exch\.b64", ptx)) == 2 * 3


@pytest.mark.parametrize("chip", ["sm_80", "sm_90", "sm_100"])
def test_the_longest_row_that_is_sorted_stays_in_registers(chip: str, tmp_path: Path) -> None:
    found = triton_assembly.compiled(emitted(sorted_rows(SORTED_ROW)), chip, tmp_path)
    assert (found.spilled, found.refused) == (0, "")


def sorted_rows(length: int) -> Kernel:
    at = triton_cases.I0 * length + triton_cases.R0
    statement = ScanStore(SORT, (load("k", (at,), i64),), (("o", at),))
    parameters: list[tuple[str, DType, Access]] = [("k", i64, "in"), ("o", i64, "out")]
    return triton_cases.kernel("ordered", parameters, [("i0", 4096)], ([("r0", length)], [statement]))


@pytest.mark.parametrize("length", [65, 2048])
def test_rows_that_are_sorted_stay_whole_in_every_tile(length: int) -> None:
    for kernel in choices(sorted_rows(length)):
        assert all(inner is not None and inner.persistent for inner in tiled(kernel).inner)


def test_a_sort_with_several_tiles_a_row_is_refused() -> None:
    kernel = replace(sorted_rows(2048), schedule=TileRequest(blocks=(("r0", 1024),)))
    with pytest.raises(CodegenError, match="larger than the tile"):
        emitted(kernel)
