"""Accesses that must move 16 bytes a thread, and detection of kernels whose accesses are narrower."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import triton_assembly
from triton_cases import I0, I1, R0, kernel, scalar
from triton_scheduled import emitted

from litz_codegen_triton.runtime.compile import compile_source
from litz_ir.dtypes import DType, bf16, f32, f64, i32, i64
from litz_ir.loops import NamedCombiner
from litz_ir.plan import Accumulate, Kernel, Store
from litz_ir.scalar import Expr, Index, Indirect, Masked, const, op, where
from litz_ir.scalar.build import load
from litz_ir.symbols import Size, SymbolInfo, floordiv, mod, mul, symbol

S = symbol("s")


def map_of(
    value: Expr, offset: Size, *axes: tuple[str, Size], divisor: int = 0, dtype: DType = f32
) -> Kernel:
    """Return the map ``o[offset] = value`` over ``axes``, whose value loads from ``x`` or ``n``.

    With a ``divisor`` it has the symbol ``s``, a multiple of that.
    """
    symbols = (SymbolInfo("s", low=1, divisor=divisor, hint=4096),) if divisor else ()
    parameters = [("x", dtype, "in"), ("n", i32, "in"), ("o", dtype, "out")]
    return kernel("k", parameters, list(axes), ((), [Store("o", offset, value)]), symbols=symbols)


def vectorised(kernel: Kernel) -> set[str]:
    """Return the accesses that must be vectorised, such as ``load x``."""
    return {f"{way} {buffer}" for way, buffer, _ in emitted(kernel).vector_accesses}


def x(offset: Size, dtype: DType = f32) -> Expr:
    return load("x", (offset,), dtype)


def masked(condition: Expr, offset: Size = I0) -> Expr:
    return Masked(condition, x(offset), const(0.0, f32))


N = 1 << 20
ROW = floordiv(I0, 64)
FOUND = Indirect(load("n", (ROW,), i32), 50, True, "clamped")


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (map_of(x(I0), I0, ("i0", N)), {"load x", "store o"}),
        (map_of(x(I0, bf16), I0, ("i0", N), dtype=bf16), {"load x", "store o"}),
        (map_of(x(I0, f64), I0, ("i0", N), dtype=f64), {"load x", "store o"}),
        # Sizes that are no multiple of 16 bytes.
        (map_of(x(I0), I0, ("i0", N + 1)), set()),
        (map_of(x(I0), I0, ("i0", N + 4)), {"load x", "store o"}),
        (map_of(x(I0, bf16), I0, ("i0", N + 4), dtype=bf16), set()),
        # A tensor so small that a thread has less than 16 bytes of it.
        (map_of(x(I0), I0, ("i0", 64)), set()),
        # Offsets of the first element, and strides.
        (map_of(x(I0 + 1), I0, ("i0", N)), {"store o"}),
        (map_of(x(I0 + 4), I0, ("i0", N)), {"load x", "store o"}),
        (map_of(x(I0 * 2), I0, ("i0", N)), {"store o"}),
        (map_of(x(I0 * 1000 + I1), I0 * 1000 + I1, ("i0", 999), ("i1", 1000)), {"load x", "store o"}),
        (map_of(x(I0 * 1002 + I1), I0 * 1000 + I1, ("i0", 999), ("i1", 1000)), {"store o"}),
        # Rows that repeat, of a multiple of 16 bytes or not.
        (map_of(x(mod(I0, 64)), I0, ("i0", N)), {"load x", "store o"}),
        (map_of(x(mod(I0, 62)), I0, ("i0", N)), {"store o"}),
        (map_of(x(floordiv(I0, 64)), I0, ("i0", N)), {"store o"}),
        # Symbolic sizes with a known divisor.
        (map_of(x(I0), I0, ("i0", S), divisor=1), set()),
        (map_of(x(I0), I0, ("i0", S), divisor=16), {"load x", "store o"}),
        (map_of(x(I0), I0, ("i0", mul(S, 64)), divisor=1), {"load x", "store o"}),
        (map_of(x(I0 + mul(S, 8)), I0, ("i0", N), divisor=1), {"load x", "store o"}),
        # Conditions that are constant over 16 bytes, and others.
        (map_of(masked(op("lt", Index(I0), const(1024, i64))), I0, ("i0", N)), {"load x", "store o"}),
        (map_of(masked(op("lt", Index(I0), const(1023, i64))), I0, ("i0", N)), {"store o"}),
        (map_of(masked(op("le", Index(I0), const(1024, i64))), I0, ("i0", N)), {"store o"}),
        (map_of(masked(op("gt", load("n", (ROW,), i32), const(3, i32))), I0, ("i0", N)), {"load x", "store o"}),
        (map_of(masked(op("gt", load("n", (I0,), i32), const(3, i32))), I0, ("i0", N)), {"load n", "store o"}),
        # Gathered rows.
        (map_of(x(FOUND * 64 + mod(I0, 64)), I0, ("i0", N)), {"load x", "store o"}),
    ],
)  # fmt: skip
def test_accesses_that_must_be_vectorised_are(made: Kernel, expected: set[str], tmp_path: Path) -> None:
    assert vectorised(made) == expected
    source = emitted(made)
    assert list(triton_assembly.narrow_accesses(source, compile_source(source, "sm_90", tmp_path))) == []


def test_a_load_under_a_condition_on_a_column_sum_need_not_be_vectorised(tmp_path: Path) -> None:
    total = Accumulate((("total", f32),), NamedCombiner("sum"), (x(R0 * 4096 + I0),))
    positive = op("gt", scalar("total"), const(0.0, f32))
    stores = [Store("o", I0, where(positive, const(1.0, f32), Masked(positive, x(I0), const(0.0, f32))))]
    made = kernel(
        "k", [("x", f32, "in"), ("o", f32, "out")], [("i0", 4096)], ([("r0", 4096)], [total]), ((), stores)
    )
    ways = [(way, buffer) for way, buffer, _ in emitted(made).vector_accesses]
    assert ways.count(("load", "x")) == 1, "the summed one, not the one under the condition"


@pytest.mark.parametrize("aligned", [True, False])
def test_narrow_accesses_are_found(aligned: bool, tmp_path: Path) -> None:
    source = replace(emitted(map_of(x(I0), I0, ("i0", N))), divisible=())
    built = compile_source(source, "sm_90", tmp_path, aligned=aligned)
    found = list(triton_assembly.narrow_accesses(source, built))
    assert found == ([] if aligned else ["0 of 1 loads have 16 bytes", "0 of 1 stores have 16 bytes"])


def test_spills_and_failures_of_the_assembler_are_reported(tmp_path: Path) -> None:
    source = emitted(map_of(x(I0), I0, ("i0", N)))
    assert triton_assembly.compiled(source, "sm_90", tmp_path) == triton_assembly.Outcome("k")
    broken = replace(source, text=source.text.replace("tl.load", "tl.no_such_function"))
    assert "no_such_function" in triton_assembly.compiled(broken, "sm_90", tmp_path).refused


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("@%p1 ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];", ("load", 16)),
        ("ld.global.L1::evict_last.L2::cache_hint.v2.b64 { %rd1, %rd2 }, [ %rd1 + 0 ], %rd9;", ("load", 16)),
        ("st.global.v8.b32 [ %rd1 + 0 ], { };", ("store", 32)),
        ("st.global.b16 [ %rd1 + 0 ], { %rs1 };", ("store", 2)),
        ("ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];", ("load", 16)),
    ],
)
def test_widths_of_instructions(line: str, expected: tuple[str, int]) -> None:
    assert dict(triton_assembly.widths(line)) == {expected: 1}
    assert (
        dict(triton_assembly.widths("ld.shared.v4.b32 { }, [ %r1 ]; .param .u64 .ptr .global .align 1 p,"))
        == {}
    )
