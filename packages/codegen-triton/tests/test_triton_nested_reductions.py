"""Nested reductions and softmax-weighted sums: the results of their kernels, and their compilation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import triton_nested_reductions
from test_triton_interpret import run_interpreted
from triton_scheduled import emitted, requested, scheduled

from litz_codegen_triton.runtime.compile import compile_source
from litz_ir.plan import Tile, TileLoops
from litz_ir.target.cases import all_cases
from litz_ir.text import parse_kernel

CASES = {case.name: case for case in triton_nested_reductions.cases()}
SUITE = {case.name: case.kernel for case in all_cases() if case.nested_reductions}


@pytest.fixture(scope="module")
def differences() -> Mapping[str, str]:
    program = Path(triton_nested_reductions.__file__)
    return {line["case"]: line["difference"] for line in run_interpreted(program)}


@pytest.mark.parametrize("name", [*CASES, *(f"suite: {name}" for name in SUITE)])
def test_a_kernel_agrees_with_the_reference_interpreter(name: str, differences: Mapping[str, str]) -> None:
    assert differences[name] == ""


@pytest.mark.parametrize("name", [*CASES, *SUITE])
def test_a_kernel_compiles(name: str, tmp_path: Path) -> None:
    made = CASES[name].kernel if name in CASES else requested(SUITE[name])
    assert compile_source(emitted(made), "sm_90", tmp_path).cubin


def test_sums_of_a_divided_row_are_exchanged_at_once_in_each_iteration(tmp_path: Path) -> None:
    source = emitted(CASES["rows_and_columns_bf16_1_in_cluster_of_3"].kernel)
    assert source.text.count("tl.reduce(") == 1, "both sums of a row are sent together"
    assert "tl.where(tl.arange(0, 4) < 3" in source.text, "the slot of no thread block is not added"
    ptx = compile_source(source, "sm_90", tmp_path).ptx
    assert ptx.count("mbarrier.init") == 2, "one barrier of even rows, one of odd ones"
    assert ptx.count("mbarrier.try_wait") == 1 and ptx.count("st.async") == 2
    assert ptx.count("barrier.cluster.wait") == 1, "the cluster meets once, before the loop"


LONG = """
kernel long(in %x: {dtype}, in %r: f32, out %o: {dtype}, out %c: f32) {{
  schedule tile_request row_cluster {cluster}
  outer [i0: 64, i1: {length}]
  phase [r0: 32] {{
    $s: f32 = reduce.sum {{ {x} }};
    %o[i0*{length}*32 + r0*{length} + i1] = {value};
  }}
  phase [] {{
    %c[i0*{length} + i1] = $s;
  }}
}}
"""


@pytest.mark.parametrize(("dtype", "block"), [("bf16", 8192), ("f32", 4096)])
def test_a_thread_block_has_the_part_of_a_row_and_the_next_one(dtype: str, block: int) -> None:
    length = 3 * block - 100
    x = f"%x[i0*{length}*32 + r0*{length} + i1]"
    total = f"nested_reduce(row: {length} | {x.replace('+ i1', '+ row')})"
    if dtype == "bf16":
        x, total = f"f32({x})", total.replace("| ", "| f32(").replace("row])", "row]))")
    value = f"{x} * {total}" if dtype == "f32" else f"bf16({x} * {total})"
    found = scheduled(
        parse_kernel(LONG.format(dtype=dtype, cluster=3, length=length, x=x, value=value))
    ).schedule
    assert isinstance(found, TileLoops)
    assert found.outer == (Tile(("i0",)), Tile(("i1",), block))
    assert (found.row_cluster, found.warps, found.prefetch) == (3, 16, (0,))
