"""Products of matrices as hand-built kernels, beside those of ``triton_corpus`` and run as they are."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from triton_corpus import I0, I1, I2, R0, R1, Case, below, kernel, load, main, op, scalar

from litz_ir.dtypes import DType, bf16, f8e4m3fn, f8e5m2, f16, f32, i8, i32, i64
from litz_ir.loops import NamedCombiner
from litz_ir.plan import Access, Accumulate, Store, TileRequest
from litz_ir.scalar import Expr, Indirect, Scalar, cast, const, index, masked
from litz_ir.symbols import Size, SymbolInfo, add, mul, symbol

Buffers = Sequence[tuple[str, DType, Access]]
SUM = scalar("s")
COUNT = Scalar("s", i32)

SIDES = (1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129)
"""Sizes around those of tiles."""


def cases() -> list[Case]:
    """Every case."""
    return [*plain(), *in_turns(), *batched(), *prologues(), *epilogues(), *others()]


def matrix(name: str, row: Size, column: Size, sizes: tuple[Size, Size], dtype: DType, turned: bool) -> Expr:
    """An element of a matrix of so many rows and columns, kept column by column where ``turned``."""
    rows, columns = sizes
    at = add(mul(column, rows), row) if turned else add(mul(row, columns), column)
    return load(name, (at,), dtype)


def summed(left: Expr, right: Expr, multiply: str = "mul", total: DType = f32) -> Accumulate:
    """The sum of products, in a dtype, that later phases read as ``SUM``, or as ``COUNT`` where that is i32."""
    return Accumulate(
        (("s", total),), NamedCombiner("sum"), (op(multiply, cast(left, total), cast(right, total)),)
    )


def product(
    name: str,
    m: int,
    n: int,
    k: int,
    dtype: DType = bf16,
    *,
    turned: tuple[bool, bool] = (False, False),
    result: DType = f32,
    value: Expr = SUM,
    more: Buffers = (),
    sizes: dict[str, int] | None = None,
    schedule: TileRequest | None = None,
    multiply: str = "mul",
    right: DType | None = None,
    total: DType = f32,
) -> Case:
    """``o = value(a @ b)``; ``turned`` says which factors are kept column by column, ``multiply`` is the operation that
    multiplies them, ``total`` what its results are summed in; the ``right`` factor may have a dtype of its own."""
    other = right or dtype
    a = matrix("a", I0, R0, (m, k), dtype, turned[0])
    b = matrix("b", R0, I1, (k, n), other, turned[1])
    made = kernel(
        name,
        [("a", dtype, "in"), ("b", other, "in"), *more, ("o", result, "out")],
        [("i0", m), ("i1", n)],
        ([("r0", k)], [summed(a, b, multiply, total)]),
        ((), [Store("o", I0 * n + I1, cast(value, result))]),
        schedule=schedule,
    )
    close = 1e-2 if result != f32 else 2e-3 if multiply.startswith("mul_f8") else 1e-5
    return Case(made, {"a": m * k, "b": k * n, "o": m * n, **(sizes or {})}, rtol=close, atol=10 * close)


def plain() -> Iterator[Case]:
    """Every size with every other in two of three places, every layout, every dtype."""
    for place, size in enumerate(SIDES):
        other, third = SIDES[(place + 3) % len(SIDES)], SIDES[(place + 7) % len(SIDES)]
        yield product(f"product_{size}_{other}_{third}", size, other, third)
    for turned in ((False, True), (True, False), (True, True)):
        yield product(f"product_turned_{turned[0]:d}{turned[1]:d}", 65, 33, 70, turned=turned)
    yield product("product_f16", 40, 129, 65, f16)
    yield product("product_rounded", 40, 129, 65, result=bf16)
    yield product("product_f32", 65, 17, 129, f32)
    yield product("product_tf32", 65, 17, 129, f32, multiply="mul_tf32")
    yield product("product_f32_small", 9, 33, 70, f32)
    for turned in ((False, True), (True, False)):
        yield product(
            f"product_i8_{turned[0]:d}{turned[1]:d}",
            65,
            33,
            70,
            i8,
            turned=turned,
            result=i32,
            value=COUNT,
            total=i32,
        )
        yield product(
            f"product_f8_{turned[0]:d}{turned[1]:d}", 65, 33, 70, f8e4m3fn, turned=turned, multiply="mul_f8"
        )
    yield product("product_f8_mixed", 40, 129, 300, f8e5m2, right=f8e4m3fn, multiply="mul_f8_fast")
    yield product("product_f8_exact", 40, 129, 65, f8e4m3fn)
    yield product("product_f8_of_bf16", 40, 129, 65, right=f8e5m2)
    yield product("product_i8_of_f16", 40, 129, 65, f16, right=i8)
    yield product("product_i8_as_floats", 40, 129, 65, i8)
    yield product("product_of_nothing", 20, 30, 0)
    blocks = TileRequest(blocks=(("i0", 32), ("i1", 64), ("r0", 16)), warps=2, stages=2)
    yield product("product_scheduled", 65, 129, 50, schedule=blocks)


def in_turns() -> Iterator[Case]:
    """Programs that take several tiles each, of factors that descriptors give where their memory can be described."""
    blocks = (("i0", 32), ("i1", 16), ("r0", 16))
    asked = TileRequest(blocks=blocks, warps=2, stages=3, grid=3, descriptors=True)
    for turned in ((False, False), (False, True), (True, False), (True, True)):
        name = f"product_described_{turned[0]:d}{turned[1]:d}"
        yield product(name, 72, 40, 56, turned=turned, schedule=asked)
    yield product("product_described_f16", 72, 40, 56, f16, schedule=asked)
    yield product("product_described_f32", 72, 40, 56, f32, schedule=asked)
    yield product("product_described_in_part", 72, 33, 56, schedule=asked)
    yield product("product_described_alone", 72, 40, 56, schedule=replace(asked, grid=0))
    yield product("product_in_turns", 65, 33, 50, schedule=replace(asked, descriptors=False))


def batched() -> Iterator[Case]:
    """Batches of products: of matrices of their own, of one for all, and with heads between rows and columns."""
    for name, own in (("product_batched", 20 * 24), ("product_one_for_all", 0)):
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
    # rows i0, heads i1, columns i2 of a head: the head belongs to the columns
    a, b = load("a", (I0 * 20 + R0,), bf16), load("b", (R0 * 24 + I1 * 8 + I2,), bf16)
    yield Case(
        kernel(
            "product_heads",
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
    """Factors that are computed on the way."""
    a = load("a", (I0 * 70 + R0,), bf16)
    scale = cast(load("c", (I1,), bf16), f32)
    dequantised = cast(op("mul", cast(load("q", (I1 * 70 + R0,), i8), f32), scale), bf16)
    yield _of(
        "product_dequantised", a, dequantised, [("q", i8, "in"), ("c", bf16, "in")], {"q": 2310, "c": 33}
    )
    relu = op("maximum", load("b", (R0 * 33 + I1,), bf16), const(0.0, bf16))
    yield _of("product_of_relu", a, relu, [("b", bf16, "in")], {"b": 2310})
    row = Indirect(load("p", (I0,), i64), 9, True, "raised")
    looked_up, b = load("a", (mul(row, 70) + R0,), bf16), load("b", (R0 * 33 + I1,), bf16)
    yield _of(
        "product_of_looked_up", looked_up, b, [("b", bf16, "in"), ("p", i64, "in")], {"b": 2310, "p": 40}
    )
    inside = op("lt", index(R0), index(50))
    padded = masked(inside, load("b", (R0 * 33 + I1,), bf16), const(1.0, bf16))
    yield _of("product_of_padded", a, padded, [("b", bf16, "in")], {"b": 50 * 33})
    yield _of("product_by_rows", a, load("c", (I1,), bf16), [("c", bf16, "in")], {"c": 33})
    wide = op("mul", load("f", (R0 * 33 + I1,), f32), const(0.5, f32))
    yield _of("product_of_mixed", a, wide, [("f", f32, "in")], {"f": 2310})


def _of(name: str, left: Expr, right: Expr, more: Buffers, sizes: dict[str, int]) -> Case:
    """40 by 33 sums over 70 points."""
    made = kernel(
        name,
        [("a", bf16, "in"), *more, ("o", f32, "out")],
        [("i0", 40), ("i1", 33)],
        ([("r0", 70)], [summed(left, right)]),
        ((), [Store("o", I0 * 33 + I1, SUM)]),
    )
    fill = {"p": below(9, low=-9), "q": below(128, low=-128)}
    return Case(made, {"a": 2800, "o": 1320, **sizes}, fill, rtol=1e-5, atol=1e-3)


def epilogues() -> Iterator[Case]:
    """What becomes of a sum before it is stored."""
    biased = op("add", SUM, cast(load("c", (I1,), bf16), f32))
    gelu = op("mul", biased, op("erf", op("mul", biased, const(0.7071067811865476, f32))))
    yield product("product_bias_gelu", 65, 40, 33, value=gelu, more=[("c", bf16, "in")], sizes={"c": 40})
    residual = op("add", SUM, cast(load("x", (I0 * 40 + I1,), bf16), f32))
    whole = product(
        "product_residual", 65, 40, 33, value=residual, more=[("x", bf16, "in")], sizes={"x": 2600}
    )
    yield whole
    (first, second) = whole.kernel.phases
    again = replace(second, statements=(*second.statements, Store("p", I1 * 65 + I0, cast(SUM, bf16))))
    twice = replace(
        whole.kernel,
        name="product_two_results",
        parameters=(*whole.kernel.parameters, replace(whole.kernel.parameters[-1], name="p", dtype=bf16)),
        phases=(first, again),
    )
    yield replace(whole, kernel=twice, sizes={**whole.sizes, "p": 2600}, rtol=1e-2, atol=1e-2)


def others() -> Iterator[Case]:
    """Sizes that are not known, several summed axes, results kept column by column."""
    s0, s1, s2 = (symbol(name) for name in ("s0", "s1", "s2"))
    infos = [SymbolInfo(name, low=0, hint=40) for name in ("s0", "s1", "s2")]
    a, b = load("a", (add(mul(I0, s2), R0),), bf16), load("b", (add(mul(R0, s1), I1),), bf16)
    made = kernel(
        "product_open",
        [("a", bf16, "in"), ("b", bf16, "in"), ("o", f32, "out")],
        [("i0", s0), ("i1", s1)],
        ([("r0", s2)], [summed(a, b)]),
        ((), [Store("o", add(mul(I0, s1), I1), SUM)]),
        symbols=infos,
    )
    for name, counts in (("product_open", (50, 33, 70)), ("product_open_empty", (50, 33, 0))):
        m, n, k = counts
        values = dict(zip(("s0", "s1", "s2"), counts))
        sizes = {"a": m * max(k, 1), "b": n * max(k, 1), "o": m * n}
        yield Case(replace(made, name=name), sizes, symbols=values, rtol=1e-5, atol=1e-4)
    a, b = load("a", (R0 * 200 + I0 * 5 + R1,), bf16), load("b", (R0 * 165 + R1 * 33 + I1,), bf16)
    two = kernel(
        "product_two_summed",
        [("a", bf16, "in"), ("b", bf16, "in"), ("o", f32, "out")],
        [("i0", 40), ("i1", 33)],
        ([("r0", 7), ("r1", 5)], [summed(a, b)]),
        ((), [Store("o", I1 * 40 + I0, SUM)]),
    )
    yield Case(two, {"a": 1400, "b": 1155, "o": 1320}, rtol=1e-5, atol=1e-4)


if __name__ == "__main__":
    main(cases(), sys.argv[1:])
