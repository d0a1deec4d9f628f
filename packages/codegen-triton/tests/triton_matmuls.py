"""Hand-built matmul kernels, which run as those of ``triton_corpus`` do."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from triton_cases import I0, I1, I2, R0, R1, Case, below, kernel, main, scalar

from litz_ir.dtypes import DType, bf16, f8e4m3fn, f8e5m2, f16, f32, i8, i32, i64
from litz_ir.loops import NamedCombiner
from litz_ir.plan import Access, Accumulate, Store, TileRequest
from litz_ir.scalar import Expr, Indirect, Scalar, cast, const, index, masked, op
from litz_ir.scalar.build import load
from litz_ir.symbols import Size, SymbolInfo, add, mul, symbol

Buffers = Sequence[tuple[str, DType, Access]]
SUM = scalar("s")
COUNT = Scalar("s", i32)

SIZES = (1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129)
"""Sizes around powers of two, the extents of tiles."""


def cases() -> list[Case]:
    """Return every case."""
    return [*plain(), *persistent(), *batched(), *prologues(), *epilogues(), *others()]


def matrix(
    name: str, row: Size, column: Size, sizes: tuple[Size, Size], dtype: DType, transposed: bool
) -> Expr:
    """Return an element of a matrix of ``sizes`` rows and columns; ``transposed`` ones are column-major."""
    rows, columns = sizes
    at = add(mul(column, rows), row) if transposed else add(mul(row, columns), column)
    return load(name, (at,), dtype)


def summed(a: Expr, b: Expr, multiply: str = "mul", accumulator: DType = f32) -> Accumulate:
    """Return the matmul of two operands; later phases read it as ``SUM``, or as ``COUNT`` where it is i32."""
    value = op(multiply, cast(a, accumulator), cast(b, accumulator))
    return Accumulate((("s", accumulator),), NamedCombiner("sum"), (value,))


def matmul(
    name: str,
    m: int,
    n: int,
    k: int,
    dtype: DType = bf16,
    *,
    transposed: tuple[bool, bool] = (False, False),
    result: DType = f32,
    value: Expr = SUM,
    more: Buffers = (),
    sizes: dict[str, int] | None = None,
    schedule: TileRequest | None = None,
    multiply: str = "mul",
    b_dtype: DType | None = None,
    accumulator: DType = f32,
) -> Case:
    """Return ``o = value(a @ b)`` of M, N and K.

    ``transposed`` says which operands are column-major, ``multiply`` is the operation that multiplies them,
    ``accumulator`` the dtype of their sum, ``b_dtype`` that of ``b`` where it has its own.
    """
    other = b_dtype or dtype
    a = matrix("a", I0, R0, (m, k), dtype, transposed[0])
    b = matrix("b", R0, I1, (k, n), other, transposed[1])
    made = kernel(
        name,
        [("a", dtype, "in"), ("b", other, "in"), *more, ("o", result, "out")],
        [("i0", m), ("i1", n)],
        ([("r0", k)], [summed(a, b, multiply, accumulator)]),
        ((), [Store("o", I0 * n + I1, cast(value, result))]),
        schedule=schedule,
    )
    rtol = 1e-2 if result != f32 else 2e-3 if multiply.startswith("mul_f8") else 1e-5
    return Case(made, {"a": m * k, "b": k * n, "o": m * n, **(sizes or {})}, rtol=rtol, atol=10 * rtol)


def plain() -> Iterator[Case]:
    """Yield matmuls without prologue or epilogue: every size, every layout, every dtype."""
    for number, size in enumerate(SIZES):
        other, third = SIZES[(number + 3) % len(SIZES)], SIZES[(number + 7) % len(SIZES)]
        yield matmul(f"matmul_{size}_{other}_{third}", size, other, third)
    for transposed in ((False, True), (True, False), (True, True)):
        yield matmul(
            f"matmul_transposed_{transposed[0]:d}{transposed[1]:d}", 65, 33, 70, transposed=transposed
        )
    yield matmul("matmul_f16", 40, 129, 65, f16)
    yield matmul("matmul_rounded", 40, 129, 65, result=bf16)
    yield matmul("matmul_f32", 65, 17, 129, f32)
    yield matmul("matmul_tf32", 65, 17, 129, f32, multiply="mul_tf32")
    yield matmul("matmul_f32_small", 9, 33, 70, f32)
    for transposed in ((False, True), (True, False)):
        yield matmul(
            f"matmul_i8_{transposed[0]:d}{transposed[1]:d}",
            65,
            33,
            70,
            i8,
            transposed=transposed,
            result=i32,
            value=COUNT,
            accumulator=i32,
        )
        yield matmul(
            f"matmul_f8_{transposed[0]:d}{transposed[1]:d}",
            65,
            33,
            70,
            f8e4m3fn,
            transposed=transposed,
            multiply="mul_f8",
        )
    yield matmul("matmul_f8_mixed", 40, 129, 300, f8e5m2, b_dtype=f8e4m3fn, multiply="mul_f8_fast")
    yield matmul("matmul_f8_exact", 40, 129, 65, f8e4m3fn)
    yield matmul("matmul_f8_of_bf16", 40, 129, 65, b_dtype=f8e5m2)
    yield matmul("matmul_i8_of_f16", 40, 129, 65, f16, b_dtype=i8)
    yield matmul("matmul_i8_as_floats", 40, 129, 65, i8)
    yield matmul("matmul_of_nothing", 20, 30, 0)
    blocks = TileRequest(blocks=(("i0", 32), ("i1", 64), ("r0", 16)), warps=2, stages=2)
    yield matmul("matmul_scheduled", 65, 129, 50, schedule=blocks)


def persistent() -> Iterator[Case]:
    """Yield persistent kernels, with operands that tensor descriptors load where their memory allows it."""
    blocks = (("i0", 32), ("i1", 16), ("r0", 16))
    request = TileRequest(blocks=blocks, warps=2, stages=3, grid=3, descriptors=True)
    for transposed in ((False, False), (False, True), (True, False), (True, True)):
        name = f"matmul_descriptors_{transposed[0]:d}{transposed[1]:d}"
        yield matmul(name, 72, 40, 56, transposed=transposed, schedule=request)
    yield matmul("matmul_descriptors_f16", 72, 40, 56, f16, schedule=request)
    yield matmul("matmul_descriptors_f32", 72, 40, 56, f32, schedule=request)
    yield matmul("matmul_descriptor_of_one", 72, 33, 56, schedule=request)
    yield matmul("matmul_descriptors_without_loop", 72, 40, 56, schedule=replace(request, grid=0))
    yield matmul("matmul_persistent", 65, 33, 50, schedule=replace(request, descriptors=False))


def batched() -> Iterator[Case]:
    """Yield batched matmuls: with a matrix ``b`` for each batch, with one for all, and with heads as part of N."""
    for name, own in (("matmul_batched", 20 * 24), ("matmul_one_for_all", 0)):
        a = load("a", (I0 * (18 * 20) + I1 * 20 + R0,), f16)
        b = load("b", (add(mul(I0, own), R0 * 24 + I2),), f16)
        yield Case(
            kernel(
                name,
                [("a", f16, "in"), ("b", f16, "in"), ("o", f32, "out")],
                [("i0", 3), ("i1", 18), ("i2", 24)],
                ([("r0", 20)], [summed(a, b)]),
                ((), [Store("o", I0 * (18 * 24) + I1 * 24 + I2, SUM)]),
            ),
            {"a": 3 * 18 * 20, "b": 3 * 20 * 24, "o": 3 * 18 * 24},
            rtol=1e-5,
            atol=1e-4,
        )
    # Rows i0, heads i1, columns i2 of a head: N consists of heads and columns.
    a, b = load("a", (I0 * 20 + R0,), bf16), load("b", (R0 * 24 + I1 * 8 + I2,), bf16)
    yield Case(
        kernel(
            "matmul_heads",
            [("a", bf16, "in"), ("b", bf16, "in"), ("o", f32, "out")],
            [("i1", 3), ("i0", 18), ("i2", 8)],
            ([("r0", 20)], [summed(a, b)]),
            ((), [Store("o", I1 * (18 * 8) + I0 * 8 + I2, SUM)]),
        ),
        {"a": 18 * 20, "b": 20 * 24, "o": 18 * 24},
        rtol=1e-5,
        atol=1e-4,
    )


def prologues() -> Iterator[Case]:
    """Yield matmuls with a prologue: operands that are computed when they are loaded."""
    a = load("a", (I0 * 70 + R0,), bf16)
    scale = cast(load("c", (I1,), bf16), f32)
    dequantised = cast(op("mul", cast(load("q", (I1 * 70 + R0,), i8), f32), scale), bf16)
    yield _of(
        "matmul_dequantised", a, dequantised, [("q", i8, "in"), ("c", bf16, "in")], {"q": 2310, "c": 33}
    )
    relu = op("maximum", load("b", (R0 * 33 + I1,), bf16), const(0.0, bf16))
    yield _of("matmul_of_relu", a, relu, [("b", bf16, "in")], {"b": 2310})
    row = Indirect(load("p", (I0,), i64), 9, True, "raised")
    gathered, b = load("a", (mul(row, 70) + R0,), bf16), load("b", (R0 * 33 + I1,), bf16)
    yield _of("matmul_of_gathered", gathered, b, [("b", bf16, "in"), ("p", i64, "in")], {"b": 2310, "p": 40})
    inside = op("lt", index(R0), index(50))
    padded = masked(inside, load("b", (R0 * 33 + I1,), bf16), const(1.0, bf16))
    yield _of("matmul_of_padded", a, padded, [("b", bf16, "in")], {"b": 50 * 33})
    first = masked(op("lt", index(I0), index(5)), load("c", (R0,), bf16), const(0.0, bf16))
    yield _of("matmul_of_first_rows", first, b, [("b", bf16, "in"), ("c", bf16, "in")], {"b": 2310, "c": 70})
    yield _of("matmul_by_row_vector", a, load("c", (I1,), bf16), [("c", bf16, "in")], {"c": 33})
    exact = op("mul", load("f", (R0 * 33 + I1,), f32), const(0.5, f32))
    yield _of("matmul_of_mixed", a, exact, [("f", f32, "in")], {"f": 2310})


def _of(name: str, a: Expr, b: Expr, more: Buffers, sizes: dict[str, int]) -> Case:
    """Return a matmul of these operands with M = 40, N = 33 and K = 70."""
    made = kernel(
        name,
        [("a", bf16, "in"), *more, ("o", f32, "out")],
        [("i0", 40), ("i1", 33)],
        ([("r0", 70)], [summed(a, b)]),
        ((), [Store("o", I0 * 33 + I1, SUM)]),
    )
    fill = {"p": below(9, low=-9), "q": below(128, low=-128)}
    return Case(made, {"a": 2800, "o": 1320, **sizes}, fill, rtol=1e-5, atol=1e-3)


def epilogues() -> Iterator[Case]:
    """Yield matmuls with an epilogue: bias and gelu, a residual, two results."""
    biased = op("add", SUM, cast(load("c", (I1,), bf16), f32))
    gelu = op("mul", biased, op("erf", op("mul", biased, const(0.7071067811865476, f32))))
    yield matmul("matmul_bias_gelu", 65, 40, 33, value=gelu, more=[("c", bf16, "in")], sizes={"c": 40})
    residual = op("add", SUM, cast(load("x", (I0 * 40 + I1,), bf16), f32))
    whole = matmul("matmul_residual", 65, 40, 33, value=residual, more=[("x", bf16, "in")], sizes={"x": 2600})
    yield whole
    (first, second) = whole.kernel.phases
    again = replace(second, statements=(*second.statements, Store("p", I1 * 65 + I0, cast(SUM, bf16))))
    twice = replace(
        whole.kernel,
        name="matmul_two_results",
        parameters=(*whole.kernel.parameters, replace(whole.kernel.parameters[-1], name="p", dtype=bf16)),
        phases=(first, again),
    )
    yield replace(whole, kernel=twice, sizes={**whole.sizes, "p": 2600}, rtol=1e-2, atol=1e-2)


def others() -> Iterator[Case]:
    """Yield matmuls with symbolic sizes, and one with two summed axes and a column-major result."""
    s0, s1, s2 = (symbol(name) for name in ("s0", "s1", "s2"))
    infos = [SymbolInfo(name, low=0, hint=40) for name in ("s0", "s1", "s2")]
    a, b = load("a", (add(mul(I0, s2), R0),), bf16), load("b", (add(mul(R0, s1), I1),), bf16)
    made = kernel(
        "matmul_symbolic",
        [("a", bf16, "in"), ("b", bf16, "in"), ("o", f32, "out")],
        [("i0", s0), ("i1", s1)],
        ([("r0", s2)], [summed(a, b)]),
        ((), [Store("o", add(mul(I0, s1), I1), SUM)]),
        symbols=infos,
    )
    for name, counts in (("matmul_symbolic", (50, 33, 70)), ("matmul_symbolic_empty", (50, 33, 0))):
        m, n, k = counts
        values = dict(zip(("s0", "s1", "s2"), counts))
        sizes = {"a": m * max(k, 1), "b": n * max(k, 1), "o": m * n}
        yield Case(replace(made, name=name), sizes, symbols=values, rtol=1e-5, atol=1e-4)
    a, b = load("a", (R0 * 200 + I0 * 5 + R1,), bf16), load("b", (R0 * 165 + R1 * 33 + I1,), bf16)
    two = kernel(
        "matmul_two_summed",
        [("a", bf16, "in"), ("b", bf16, "in"), ("o", f32, "out")],
        [("i0", 40), ("i1", 33)],
        ([("r0", 7), ("r1", 5)], [summed(a, b)]),
        ((), [Store("o", I1 * 40 + I0, SUM)]),
    )
    yield Case(two, {"a": 1400, "b": 1155, "o": 1320}, rtol=1e-5, atol=1e-4)


if __name__ == "__main__":
    main(cases(), sys.argv[1:])
