"""Kernels of the corpus compiled to cubins for sm_90, on whatever machine this is."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import triton_corpus

from litz_codegen_triton.emit.kernel import emit_kernel
from litz_codegen_triton.runtime.compile import CompiledKernel, compile_source
from litz_ir.dtypes import DType, bf16, f32
from litz_ir.errors import CompileFailed, TargetError, ToolchainError

CASES = {case.name: case for case in triton_corpus.cases()}
# The others differ from these in the interpreter's eyes alone.
COMPILED = [
    name
    for name in CASES
    if not re.search(
        r"_loop_x$|operations_(f16|i32|i8|u32)|casts_from_(i16|i8|u64|u32|u16|f8e5m2)|gelu_[17]$", name
    )
]
ELF = b"\x7fELF"


@pytest.mark.parametrize("name", COMPILED)
def test_kernel_compiles_to_a_cubin(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    found = compile_source(emit_kernel(case.kernel), "sm_90", tmp_path)
    assert found.cubin.startswith(ELF)
    assert found.parameters >= len(case.kernel.parameters) + len(case.kernel.symbols)
    assert ".target sm_90" in found.ptx


@pytest.mark.parametrize("chip", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("dtype", [f32, bf16], ids=str)
def test_accesses_are_as_wide_as_alignment_allows(dtype: DType, chip: str, tmp_path: Path) -> None:
    source = emit_kernel(wide_map(1 << 20, dtype))
    ptx = compile_source(source, chip, tmp_path).ptx
    assert "ld.global.v4.b32" in ptx and "st.global.v4.b32" in ptx
    assert not re.search(r"(ld|st)\.global\.(b16|b32|v2)", ptx), "all accesses are of 16 bytes"
    unaligned = compile_source(replace(source, divisible=()), chip, tmp_path, aligned=False).ptx
    assert "global.v4.b32" not in unaligned


def wide_map(count: int, dtype: DType) -> triton_corpus.Kernel:
    kernel = triton_corpus.kernel
    body = triton_corpus.op("neg", triton_corpus.load("x", (triton_corpus.I0,), dtype))
    store = triton_corpus.Store("o", triton_corpus.I0, body)
    return kernel("wide", [("x", dtype, "in"), ("o", dtype, "out")], [("i0", count)], ((), [store]))


def test_a_row_wider_than_a_vector_is_read_in_vectors(tmp_path: Path) -> None:
    found = compile_source(emit_kernel(CASES["transpose"].kernel), "sm_90", tmp_path)
    assert found.shared > 0, "a transpose goes through shared memory"


def test_shared_columns_are_read_ahead_in_vectors(tmp_path: Path) -> None:
    found = compile_source(emit_kernel(CASES["tall_columns_shared_by_4"].kernel), "sm_90", tmp_path)
    assert "cp.async.cg.shared.global" in found.ptx and found.shared > 0


def test_compiled_kernels_are_read_back(tmp_path: Path) -> None:
    found = compile_source(emit_kernel(CASES["softmax"].kernel), "sm_90", tmp_path)
    assert CompiledKernel.from_bytes(found.to_bytes()) == replace(found, ptx="")
    for broken in (b"", b"{}", b"{}\n", found.to_bytes()[5:], b'{"format": "other"}\n'):
        with pytest.raises(ToolchainError, match="not a compiled kernel"):
            CompiledKernel.from_bytes(broken)


def test_errors_name_the_kernel_and_the_chip(tmp_path: Path) -> None:
    source = emit_kernel(CASES["softmax"].kernel)
    with pytest.raises(TargetError, match="no chip"):
        compile_source(source, "gfx90a", tmp_path)
    broken = replace(source, text=source.text.replace("tl.sum", "tl.no_such_function"))
    with pytest.raises(CompileFailed, match="softmax") as caught:
        compile_source(broken, "sm_90", tmp_path)
    assert "no_such_function" in caught.value.output
    with pytest.raises(ToolchainError, match="is broken"):
        compile_source(replace(source, text="def ("), "sm_90", tmp_path)
